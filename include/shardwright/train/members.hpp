// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The named members of a module, which determine its parameters, their names and initial values.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/pipeline/shared_parts.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A visitor that does nothing; nvcc rejects a generic lambda in a concept.
struct VisitsAnything {
  template <class Part> void operator()(Part&) const {}
};

/// Members with their names. Not a std::tuple, whose constructors take a multiple of the time to compile.
template <class... Types> struct MemberList {
  template <class Visitor> void each(const Visitor&) const {}
};
template <class First, class... Rest> struct MemberList<First, Rest...> {
  std::string_view name;
  First& object;
  MemberList<Rest...> rest;

  /// Calls visit(name, object) with each.
  template <class Visitor> void each(const Visitor& visit) const {
    visit(name, object);
    rest.each(visit);
  }
};
template <class First, class... Rest>
MemberList(std::string_view, First&, MemberList<Rest...>) -> MemberList<First, Rest...>;

[[nodiscard]] inline MemberList<> list_members() noexcept { return {}; }
template <class First, class... Rest>
[[nodiscard]] auto list_members(std::string_view name, First& first, Rest&&... rest) noexcept {
  return MemberList{name, first, list_members(std::forward<Rest>(rest)...)};
}

template <class Type> inline constexpr bool is_parameter = false;
template <class C, class R, class E, class Z, class T>
inline constexpr bool is_parameter<Parameter<C, R, E, Z, T>> = true;

template <class Type>
concept HasMembers = requires(Type& owner) {
  owner.members();
};
/// A container of modules, whose paths are its name and their indices.
template <class Type>
concept ModuleRange = requires(Type& modules) {
  modules.begin();
  modules.end();
};
template <class Type>
concept ModulePointer = requires(Type& module) {
  static_cast<bool>(module);
  *module;
};
template <class Type> struct MemberOf {
  static constexpr bool value = std::is_base_of_v<NamedPart, Type> || is_tied<Type> || HasMembers<Type> ||
                                ModuleRange<Type> || ModulePointer<Type>;
  static_assert(
      value,
      "members: a member must be a Parameter, a module with members(), or a container of modules (leave plain numbers out)");
};

/// A part of a model under its path.
struct ListedPart {
  std::string path;
  NamedPart* part;
  ParameterBase* parameter; ///< The same as a parameter, or null if it is not one.
  bool tied = false;        ///< Known by its own name instead of its path.
  bool owned = true; ///< Whether this is the entry that counts, among all parts of the rank that hold it.
};

/// The path of a member.
[[nodiscard]] std::string path_below(const std::string& path, std::string_view name);

/// Appends every parameter and named part, depth first, in the order of the lists.
template <class Type> void list_parts(Type& part, const std::string& path, std::vector<ListedPart>& out) {
  if constexpr (!MemberOf<Type>::value) {
    // The sentence has been printed.
  } else if constexpr (is_tied<Type>) {
    out.push_back({part.name(), &*part, &*part, true, part.owns()});
  } else if constexpr (is_parameter<Type>) {
    out.push_back({path, &part, &part});
  } else if constexpr (HasMembers<Type>) {
    part.members().each(
        [&](std::string_view name, auto& member) { list_parts(member, path_below(path, name), out); });
  } else if constexpr (ModuleRange<Type>) {
    std::size_t number = 0;
    for (auto& each : part)
      list_parts(each, path_below(path, std::to_string(number++)), out);
  } else if constexpr (ModulePointer<Type>) {
    if (part)
      list_parts(*part, path, out);
  } else {
    out.push_back({path, &part, nullptr});
  }
}

/// Calls visit(parameter) with each parameter that counts, with its own type.
template <class Type, class Visitor> void visit_parameters(Type& part, Visitor& visit) {
  if constexpr (is_tied<Type>) {
    if (part.owns())
      visit(*part);
  } else if constexpr (is_parameter<Type>) {
    visit(part);
  } else if constexpr (HasMembers<Type>) {
    part.members().each([&](std::string_view, auto& member) { visit_parameters(member, visit); });
  } else if constexpr (ModuleRange<Type>) {
    for (auto& each : part)
      visit_parameters(each, visit);
  } else if constexpr (ModulePointer<Type>) {
    if (part)
      visit_parameters(*part, visit);
  }
}

/// Lists parameters, for code that need not be compiled for the type of each.
struct ParameterList {
  std::vector<ParameterBase*> all;
  void operator()(ParameterBase& parameter);
};

/// Throws if two parts have the same path, which identifies them for initial values, checkpoints and replica
/// checks.
[[noreturn]] void reject_repeated_path(const std::string& path);

/// The paths of a model's parts, each of which must be unique; uses of a tied parameter count as one.
class DistinctPaths {
public:
  /// @throws InvalidArgument for a path that exists already.
  void add(const std::vector<ListedPart>& parts);

private:
  std::map<std::string, bool> tied_; // by path
};

/// Names the parts that this rank owns, and fills them.
void initialize_parts(const std::vector<ListedPart>& parts, std::uint64_t seed);

} // namespace detail

/// @brief The members of a module, name by name: `return sw::members("norm", norm_, "up", up_);`.
///
/// Members are parameters, modules, and containers, optionals or pointers of modules. A name is that of the
/// member in the parameter's path, "layers.3.mlp.up"; an empty one leaves the path unchanged.
template <class... Arguments> [[nodiscard]] auto members(Arguments&&... arguments) {
  static_assert(
      sizeof...(Arguments) % 2 == 0,
      "members: every member must come with its name (write members(\"up\", up_, \"down\", down_))");
  static_assert(
      !(std::is_same_v<std::remove_const_t<Arguments>, std::string> || ...),
      "members: a name must live as long as its module, but this string is a temporary (write a literal, or keep the string in the module)");
  if constexpr (sizeof...(Arguments) % 2 == 0)
    return detail::list_members(std::forward<Arguments>(arguments)...);
}

/// @brief A model's parameters: its `members()`, or `for_each_parameter(visitor)`, which calls the visitor
/// with each one, in the same order on all ranks.
template <class Model>
concept ParameterSet = detail::HasMembers<Model> || requires(Model& model) {
  model.for_each_parameter(detail::VisitsAnything{});
};

/// @brief Calls `visit(parameter)` with each parameter of a model, in the order of its lists.
template <ParameterSet Model, class Visitor> void for_each_parameter(Model& model, Visitor&& visit) {
  if constexpr (requires { model.for_each_parameter(visit); })
    model.for_each_parameter(visit);
  else
    detail::visit_parameters(model, visit);
}

/// @brief The same with each parameter that is not frozen.
template <ParameterSet Model, class Visitor> void for_each_trained_parameter(Model& model, Visitor&& visit) {
  for_each_parameter(model, [&visit]<class P>(P& parameter) {
    if constexpr (P::trained)
      visit(parameter);
  });
}

/// @brief The trained parameters of a model as a ParameterSet, such as adapters that are saved without the
/// frozen weights: `checkpoint::stage(TrainedParameters{model}, ...)`. Checkpoints of it also hold what the
/// model's other parts keep, such as the load of experts. The model must outlive it.
template <ParameterSet Model> struct TrainedParameters {
  Model& model;
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    for_each_trained_parameter(model, visit);
  }
  /// @brief Those of the model, for the parts that are no parameters.
  template <class Visitor> void for_each_stage(Visitor&& visit) requires requires {
    model.for_each_stage(detail::VisitsAnything{});
  }
  { model.for_each_stage(visit); }
  [[nodiscard]] auto members() requires detail::HasMembers<Model> { return model.members(); }
};
template <class Model> TrainedParameters(Model&) -> TrainedParameters<Model>;

/// @brief A model's parameters without their types, in the same order.
template <ParameterSet Model> [[nodiscard]] std::vector<ParameterBase*> parameters_of(Model& model) {
  detail::ParameterList list;
  for_each_parameter(model, list);
  return std::move(list.all);
}

/// @brief Names every part of a model by its path and draws its initial values, which depend on `seed` and
/// the path: not on the mesh, nor on which other parts a rank holds. Collective only in checked builds, over
/// the parts' mesh.
/// @param path of the model itself; empty for a whole one
/// @throws InvalidArgument if two parts have one path; LifecycleError for a part that is initialized
/// already.
template <class Model> void initialize(Model& model, std::uint64_t seed, const std::string& path = {}) {
  std::vector<detail::ListedPart> parts;
  detail::list_parts(model, path, parts);
  detail::DistinctPaths().add(parts);
  detail::initialize_parts(parts, seed);
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string detail::path_below(const std::string& path, std::string_view name) {
  return name.empty() ? path : path.empty() ? std::string(name) : path + "." + std::string(name);
}

SHARDWRIGHT_INLINE void detail::reject_repeated_path(const std::string& path) {
  throw InvalidArgument(
      "members: every part of a model must have a unique path, but two have " +
      (path.empty() ? "the empty one" : path) +
      " (give them different names, or one of the Parts that hold them a name of its own, which begins its paths: static constexpr std::string_view name = \"encoder\"; or make them one TiedParameter)");
}

SHARDWRIGHT_INLINE void detail::DistinctPaths::add(const std::vector<ListedPart>& parts) {
  for (const ListedPart& each : parts)
    if (const auto [at, made] = tied_.try_emplace(each.path, each.tied); !made && !(at->second && each.tied))
      reject_repeated_path(each.path);
}

SHARDWRIGHT_INLINE void detail::initialize_parts(const std::vector<ListedPart>& parts, std::uint64_t seed) {
  for (const ListedPart& each : parts)
    if (each.owned)
      each.part->initialize(each.path, seed);
}

[[gnu::noinline]] SHARDWRIGHT_INLINE void detail::ParameterList::operator()(ParameterBase& parameter) {
  all.push_back(&parameter);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
