// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a module consists of: its members by name, from which parameters, names, initial values and
/// counts follow.

#include <shardwright/core/config.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/shared_parts.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A visitor that does nothing; nvcc takes no generic lambda in a concept.
struct VisitsAnything {
  template <class Part>
  void operator()(Part&) const {}
};

template <class Type>
struct Member {
  std::string_view name;
  Type& object;
};

template <std::size_t... index, class Arguments>
[[nodiscard]] auto paired(std::index_sequence<index...>, const Arguments& arguments) {
  return std::tuple<Member<std::remove_reference_t<std::tuple_element_t<2 * index + 1, Arguments>>>...>{
      {std::get<2 * index>(arguments), std::get<2 * index + 1>(arguments)}...};
}

template <class Type>
inline constexpr bool is_parameter = false;
template <class C, class R, class E, class Z, class T>
inline constexpr bool is_parameter<Parameter<C, R, E, Z, T>> = true;

template <class Type>
concept HasMembers = requires(Type& module) {
  module.members();
};
/// A container of modules, whose paths are its name with their numbers.
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
/// A part of a module that has a name and no parameters, such as dropout.
template <class Type>
concept NamedPart = requires(Type& part) {
  part.initialize(std::string(), std::uint64_t{});
};

template <class Type>
struct MemberOf {
  static constexpr bool value =
      is_parameter<Type> || is_tied<Type> || HasMembers<Type> || ModuleRange<Type> || ModulePointer<Type> || NamedPart<Type>;
  static_assert(value, "members: a member must be a Parameter, a module with members(), or a container of modules (leave plain numbers out)");
};

/// The number of a range's first module in the whole model.
template <class Modules>
[[nodiscard]] std::size_t first_number(const Modules& modules) {
  if constexpr (requires { modules.first_number(); })
    return modules.first_number();
  else
    return 0;
}

/// Whose tied parameters are visited.
enum class TiedParts : std::uint8_t { owned, all };

/// Calls visit(part, path) for every parameter and named part, depth first, in the order of the lists.
template <TiedParts tied = TiedParts::owned, class Type, class Visitor>
void visit_parts(Type& part, const std::string& path, Visitor&& visit) {
  const auto below = [&path](std::string_view name) {
    return name.empty() ? path : path.empty() ? std::string(name) : path + "." + std::string(name);
  };
  if constexpr (!MemberOf<std::remove_const_t<Type>>::value) {
    // The sentence has been printed.
  } else if constexpr (is_parameter<Type>) {
    visit(part, path);
  } else if constexpr (is_tied<Type>) {
    if (tied == TiedParts::all || part.owns())
      visit(*part, part.name());
  } else if constexpr (HasMembers<Type>) {
    std::apply([&](auto... member) { (visit_parts<tied>(member.object, below(member.name), visit), ...); }, part.members());
  } else if constexpr (ModuleRange<Type>) {
    std::size_t number = first_number(part);
    for (auto& each : part)
      visit_parts<tied>(each, below(std::to_string(number++)), visit);
  } else if constexpr (ModulePointer<Type>) {
    if (part)
      visit_parts<tied>(*part, path, visit);
  } else {
    visit(part, path);
  }
}

} // namespace detail

/// @brief The members of a module, name by name: `return sw::members("norm", norm_, "up", up_);`.
///
/// Members are parameters, modules, and containers, optionals or pointers of modules. A name is that of the member in
/// the parameter's path, "layers.3.mlp.up"; an empty one leaves the path as it is.
template <class... Arguments>
[[nodiscard]] auto members(Arguments&&... arguments) {
  static_assert(sizeof...(Arguments) % 2 == 0, "members: every member must come with its name (write members(\"up\", up_, \"down\", down_))");
  return detail::paired(std::make_index_sequence<sizeof...(Arguments) / 2>{}, std::tuple<Arguments&&...>(std::forward<Arguments>(arguments)...));
}

/// @brief A model's parameters: its `members()`, or `for_each_parameter(visitor)`, which calls the visitor with each
/// one, in one order on all ranks.
template <class Model>
concept ParameterSet = detail::HasMembers<Model> || requires(Model& model) {
  model.for_each_parameter(detail::VisitsAnything{});
};

/// @brief Calls `visit(parameter)` with each parameter of a model, in the order of its lists.
template <ParameterSet Model, class Visitor>
void for_each_parameter(Model& model, Visitor&& visit) {
  if constexpr (requires { model.for_each_parameter(visit); })
    model.for_each_parameter(visit);
  else
    detail::visit_parts(model, {}, [&visit](auto& part, const std::string&) {
      if constexpr (detail::is_parameter<std::remove_cvref_t<decltype(part)>>)
        visit(part);
    });
}

/// @brief Names every part of a model by its path and draws its initial values, which depend on `seed` and the path: not
/// on the mesh, nor on which other parts a rank holds. Not collective.
/// @param path of the model itself; empty for a whole one
/// @throws LifecycleError for a part that is initialized already.
template <class Model>
void initialize(Model& model, std::uint64_t seed, const std::string& path = {}) {
  detail::visit_parts(model, path, [seed](auto& part, const std::string& name) { part.initialize(name, seed); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
