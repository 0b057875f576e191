// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model as a list of parts, of which a pipeline stage constructs its own.

#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/shared_parts.hpp>
#include <shardwright/train/step/loss_axes.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Parts of a model in order: the first turns a batch into the stream, the last turns the stream into
/// a loss.
///
/// | part | is called as | gives |
/// |---|---|---|
/// | first | `part(tape, batch)` | the stream, a Var |
/// | others | `part(stream)` or `part(stream, batch)` | a Var of the same type |
/// | last | `part(stream, batch)` | a loss, such as cross_entropy's |
///
/// A part is constructed as `Part(place, config)`, with a ModelPlace. The paths of its parameters begin with
/// its `static constexpr std::string_view name`, and the number of a repeated part; without a name, with
/// "layers" and the number, or for a part that is not repeated with nothing. A class that derives from a part
/// and adds a name renames it.
template <class... Part> struct Parts {};

/// @brief In Parts, a part that is repeated as often as a member of the configuration says,
/// `&Config::layers`: the layers. A pipeline is cut before, between or after them. Without a count, the
/// module of nn/layers/sequential.hpp.
template <class Part, auto... count> class Repeat;
template <class Part, auto count> class Repeat<Part, count> {};

/// @brief Where a part is constructed: its mesh, the objects shared with other parts of its rank, its number.
template <class Mesh> struct ModelPlace {
  const Mesh& mesh;
  SharedParts& shared;
  std::size_t number = 0; ///< Of a repeated part, in the whole model.
};

namespace detail {

/// The units of a model that a stage holds: [begin, end) of all parts, with each repetition counted.
struct UnitRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool contains(std::size_t unit) const noexcept { return unit >= begin && unit < end; }
};

/// Calls visit(null pointer) with the types of a module and, if that returns true, of the members below it.
template <class Type, class Visitor> constexpr void visit_module_types(const Visitor& visit);
template <class... Types, class Visitor>
constexpr void visit_listed_types(const MemberList<Types...>*, const Visitor& visit) {
  (visit_module_types<Types>(visit), ...);
}
template <class Type, class Visitor> constexpr void visit_module_types(const Visitor& visit) {
  if (!visit(static_cast<const Type*>(nullptr)))
    return;
  if constexpr (is_parameter<Type>)
    return;
  else if constexpr (HasMembers<Type>)
    visit_listed_types(
        static_cast<const std::remove_cvref_t<decltype(std::declval<Type&>().members())>*>(nullptr), visit);
  else if constexpr (ModuleRange<Type>)
    visit_module_types<std::remove_cvref_t<decltype(*std::declval<Type&>().begin())>>(visit);
  else if constexpr (is_tied<Type> || ModulePointer<Type>)
    visit_module_types<std::remove_cvref_t<decltype(*std::declval<Type&>())>>(visit);
}

/// A configuration that adds adapters to the modules of a part, before their initial values are drawn.
template <class Config>
concept AddsAdapters = requires(const Config& config) {
  config.adapters.require_some(std::size_t{1});
};

/// Whether a type has a trained parameter: certainly, or also one that exists or not at run time.
template <class Part, bool certainly> [[nodiscard]] constexpr bool has_trained() {
  bool out = false;
  visit_module_types<Part>([&out]<class Type>(const Type*) {
    if constexpr (is_parameter<Type>)
      out = out || Type::trained;
    return !certainly || !(ModulePointer<Type> || ModuleRange<Type>);
  });
  return out;
}

/// The units of a part that a stage holds: of a part that is not repeated one or none, else some layers.
template <class Part, auto... how_often> class PartHolder {
public:
  using type = Part;
  static constexpr bool repeated = sizeof...(how_often) > 0;
  template <class Config> [[nodiscard]] static std::size_t count([[maybe_unused]] const Config& config) {
    if constexpr (repeated)
      return static_cast<std::size_t>(((config.*how_often), ...));
    else
      return 1;
  }
  template <class Mesh, class Config>
  void make(const ModelPlace<Mesh>& place, const Config& config, std::size_t first, const UnitRange& units) {
    for (std::size_t i = 0; i < count(config); ++i)
      if (units.contains(first + i)) {
        if (parts_.empty())
          first_ = i;
        parts_.push_back(std::make_unique<Part>(ModelPlace<Mesh>{place.mesh, place.shared, i}, config));
      }
  }
  [[nodiscard]] static std::string name(std::size_t number) {
    std::string out(repeated ? "layers" : "");
    if constexpr (requires { Part::name; })
      out = Part::name;
    return repeated ? out + "." + std::to_string(number) : out;
  }
  template <class Visitor> void visit(Visitor&& visitor) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      visitor(*parts_[i], first_ + i);
  }
  /// Whether a unit has a trained parameter, known on ranks that do not hold it, too.
  template <class Mesh, class Config>
  [[nodiscard]] static bool trains(const Mesh& mesh, const Config& config, std::size_t number) {
    if constexpr (has_trained<Part, true>() || !has_trained<Part, false>())
      return has_trained<Part, true>();
    SharedParts shared;
    Part part(ModelPlace<Mesh>{mesh, shared, number}, config); // its parameters have no memory yet
    if constexpr (AddsAdapters<Config>)
      config.adapters.add_to(part, name(number));
    bool out = false;
    const auto look = [&out]<class P>(const P&) { out = out || P::trained; };
    visit_parameters(part, look);
    return out;
  }

private:
  std::vector<std::unique_ptr<Part>> parts_; // with stable addresses: a tape refers to their parameters
  std::size_t first_ = 0;
};

template <class Part> struct HolderOf { using type = PartHolder<Part>; };
template <class Part, auto count> struct HolderOf<Repeat<Part, count>> {
  using type = PartHolder<Part, count>;
};

/// The units of each part that a stage holds, in order.
template <class... Holder> struct HolderList {
  template <std::size_t place = 0, class Visitor> void each(const Visitor&) {}
};
template <class First, class... Rest> struct HolderList<First, Rest...> {
  First first;
  HolderList<Rest...> rest;

  /// Calls visit(holder, its index as a std::integral_constant) for each.
  template <std::size_t place = 0, class Visitor> void each(const Visitor& visit) {
    visit(first, std::integral_constant<std::size_t, place>{});
    rest.template each<place + 1>(visit);
  }
};

/// The loss of a model with a part that needs the whole batch; see WholeBatchLoss.
template <class Loss> struct OverWholeBatch : Loss { static constexpr bool needs_whole_batch = true; };

template <bool over_whole_batch, class Loss> struct LossOver { using type = Loss; };
template <class Loss> struct LossOver<true, Loss> { using type = OverWholeBatch<Loss>; };

template <class List> struct PartHolders;
template <class... Part> struct PartHolders<Parts<Part...>> {
  using type = HolderList<typename HolderOf<Part>::type...>;
  static constexpr std::size_t size = sizeof...(Part);
  /// Whether a part, or a member of one, has a loss that needs the whole batch. What lies behind a pointer or
  /// in an optional exists or not at run time; it counts if `optional` is true.
  template <bool optional> [[nodiscard]] static constexpr bool needs_whole_batch() {
    bool out = false;
    const auto look = [&out]<class Type>(const Type*) {
      if constexpr (requires { Type::needs_whole_batch; })
        out = out || Type::needs_whole_batch;
      return !requires { Type::needs_whole_batch; }
      &&(optional || !ModulePointer<Type>);
    };
    (visit_module_types<typename HolderOf<Part>::type::type>(look), ...);
    return out;
  }
  static constexpr bool over_whole_batch = needs_whole_batch<false>();
  static constexpr bool may_read_whole_batch = needs_whole_batch<true>();
  using First = typename HolderOf<std::tuple_element_t<0, std::tuple<Part...>>>::type::type;
  using Last = typename HolderOf<std::tuple_element_t<size - 1, std::tuple<Part...>>>::type::type;

  /// The axes over which the gradient of every trained parameter of the model is a sum, whatever stage holds
  /// it.
  [[nodiscard]] static SummedAxes summed_axes() {
    SummedAxes out;
    const auto look = [&out]<class Type>(const Type*) {
      if constexpr (is_parameter<Type>)
        if constexpr (Type::trained)
          out.keep_only(partial_axes<typename Type::raw_layout>());
      return true;
    };
    (visit_module_types<typename HolderOf<Part>::type::type>(look), ...);
    return out;
  }

  /// Calls visit(holder) with a null pointer to each.
  template <class Visitor> static constexpr void visit_types(const Visitor& visit) {
    (visit(static_cast<const typename HolderOf<Part>::type*>(nullptr)), ...);
  }
};

/// The first unit of a model that has a trained parameter, or `end`.
template <class Model, class Mesh>
[[nodiscard]] std::size_t first_trained_unit(const Mesh& mesh, const typename Model::Config& config,
                                             std::size_t end) {
  std::size_t first = end, unit = 0;
  PartHolders<typename Model::Parts>::visit_types([&]<class Holder>(const Holder*) {
    for (std::size_t i = 0; i < Holder::count(config); ++i, ++unit)
      if (unit < first && Holder::trains(mesh, config, i))
        first = unit;
  });
  return first;
}

/// Names of the tied parameters of a part.
template <class Part, class Config>
[[nodiscard]] std::vector<std::string_view> ties_of(const Config& config) {
  if constexpr (requires { Part::ties(config); })
    return Part::ties(config);
  else
    return {};
}

/// Calls visit(name, unit) with the name of every tied parameter and each unit of the model that uses it.
template <class Model, class Visitor> void for_each_tie(const typename Model::Config& config, Visitor visit) {
  std::size_t unit = 0;
  PartHolders<typename Model::Parts>::visit_types([&]<class Holder>(const Holder*) {
    const auto names = ties_of<typename Holder::type>(config);
    for (std::size_t i = 0; i < Holder::count(config); ++i, ++unit)
      for (const std::string_view name : names)
        visit(name, unit);
  });
}

/// The element type of all parameters, if a model names one.
template <class Model> struct ElementOfModel {};
template <class Model>
requires requires { typename Model::element; }
struct ElementOfModel<Model> {
  using element = typename Model::element;
};

/// The model's own check of its sizes, if it has one.
template <class Model, class Mesh> void check_model(const Mesh& mesh, const typename Model::Config& config) {
  if constexpr (requires { Model::check(mesh, config); })
    Model::check(mesh, config);
}

/// The numbers of a model's units, of those before its layers, and of its layers.
struct UnitCounts {
  std::size_t all = 0;
  std::size_t before = 0;
  std::size_t layers = 0;
};
template <class Model> [[nodiscard]] UnitCounts count_units(const typename Model::Config& config) {
  UnitCounts out;
  std::size_t behind = 0; // the last repeated part
  PartHolders<typename Model::Parts>::visit_types([&]<class Holder>(const Holder*) {
    const std::size_t units = Holder::count(config);
    if (Holder::repeated) {
      if (out.layers == 0 && behind == 0)
        out.before = out.all;
      out.layers = out.all + units - out.before;
      behind = out.all + units;
    }
    out.all += units;
  });
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
