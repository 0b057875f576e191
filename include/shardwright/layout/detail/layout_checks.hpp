// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads placements into a LayoutValue, with error sentences for invalid layouts.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/placement.hpp>

#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

enum class PlacementKind { none, shard, replicate, partial };

template <class Placement> struct PlacementTraits {
  static constexpr PlacementKind kind = PlacementKind::none;
  static constexpr int dimension = 0;
  static constexpr ReduceOp op = ReduceOp::sum;
  static constexpr bool axes_valid = true;
  using axes = AxisList<>;
};

/// The axes if all arguments are axes, else none: later checks must not fail on a type without a name.
template <class... Axes> struct AxesIfValid {
  static constexpr bool valid = (... && Axis<Axes>);
  template <bool, class... List> struct Choose { using type = AxisList<>; };
  template <class... List> struct Choose<true, List...> { using type = AxisList<List...>; };
  using type = typename Choose<valid, Axes...>::type;
};

template <int shard_dimension, class... Axes> struct PlacementTraits<Shard<shard_dimension, Axes...>> {
  static constexpr PlacementKind kind = PlacementKind::shard;
  static constexpr int dimension = shard_dimension;
  static constexpr ReduceOp op = ReduceOp::sum;
  static constexpr bool axes_valid = AxesIfValid<Axes...>::valid;
  using axes = typename AxesIfValid<Axes...>::type;
};
template <class Type> inline constexpr bool is_halo = false;
template <int before, int after> inline constexpr bool is_halo<Halo<before, after>> = true;
template <int before, int after> inline constexpr bool is_halo<PeriodicHalo<before, after>> = true;

template <int before, int after>
constexpr bool halo_valid = before >= 0 && after >= 0 && before + after > 0 &&
                            before <= DimensionHalo::most&& after <= DimensionHalo::most;

template <class Given> struct HaloTraits;
template <int before, int after> struct HaloTraits<Halo<before, after>> {
  static constexpr bool valid = halo_valid<before, after>;
  static constexpr DimensionHalo value = valid ? DimensionHalo::of(before, after, false) : DimensionHalo{};
};
template <int before, int after> struct HaloTraits<PeriodicHalo<before, after>> {
  static constexpr bool valid = halo_valid<before, after>;
  static constexpr DimensionHalo value = valid ? DimensionHalo::of(before, after, true) : DimensionHalo{};
};

/// The arguments of a Shard with a Halo: the axes before it, and whether it is the last and only one.
template <class Before, class... Arguments> struct SplitShard;
template <class... Before, class Last> struct SplitShard<AxesIfValid<Before...>, Last> {
  static constexpr bool last = is_halo<Last> && !(... || is_halo<Before>);
  using axes = AxesIfValid<Before...>;
  using halo = std::conditional_t<last, Last, Halo<1>>;
};
template <class... Before, class First, class Second, class... Rest>
struct SplitShard<AxesIfValid<Before...>, First, Second, Rest...>
    : SplitShard<AxesIfValid<Before..., First>, Second, Rest...> {};

template <int shard_dimension, class... Arguments>
requires(... || is_halo<Arguments>) struct PlacementTraits<Shard<shard_dimension, Arguments...>> {
  using split = SplitShard<AxesIfValid<>, Arguments...>;
  static constexpr PlacementKind kind = PlacementKind::shard;
  static constexpr int dimension = shard_dimension;
  static constexpr ReduceOp op = ReduceOp::sum;
  static constexpr bool axes_valid = split::axes::valid || !split::last;
  static constexpr bool halo_last = split::last;
  static constexpr bool halo_valid = HaloTraits<typename split::halo>::valid;
  static constexpr DimensionHalo halo = HaloTraits<typename split::halo>::value;
  using axes = typename split::axes::type;
};
template <class... Axes> struct PlacementTraits<Replicate<Axes...>> {
  static constexpr PlacementKind kind = PlacementKind::replicate;
  static constexpr int dimension = 0;
  static constexpr ReduceOp op = ReduceOp::sum;
  static constexpr bool axes_valid = AxesIfValid<Axes...>::valid;
  using axes = typename AxesIfValid<Axes...>::type;
};
template <Reduction Op, class... Axes> struct PlacementTraits<Partial<Op, Axes...>> {
  static constexpr PlacementKind kind = PlacementKind::partial;
  static constexpr int dimension = 0;
  static constexpr ReduceOp op = Op::value;
  static constexpr bool axes_valid = AxesIfValid<Axes...>::valid;
  using axes = typename AxesIfValid<Axes...>::type;
};

/// Axes of all placements in the order written, then sorted.
template <class... Placements>
using WrittenAxes = typename JoinAxes<typename PlacementTraits<Placements>::axes...>::type;
template <class... Placements> using AxesOfPlacements = typename SortAxes<WrittenAxes<Placements...>>::type;

template <class Table, class Placement> constexpr void place(LayoutValue& layout) {
  using Traits = PlacementTraits<Placement>;
  for (const auto& name : Traits::axes::names) {
    const int axis = axis_index(Table::names, name);
    if constexpr (Traits::kind == PlacementKind::shard)
      layout.shard(Traits::dimension).push_back(axis);
    if constexpr (Traits::kind == PlacementKind::partial)
      layout.set_partial(axis, Traits::op);
  }
  if constexpr (requires { Traits::halo; })
    layout.halo(Traits::dimension) = Traits::halo;
}

template <class Table, int rank, class... Placements> constexpr LayoutValue layout_value() {
  LayoutValue layout;
  layout.tensor_rank = rank;
  (place<Table, Placements>(layout), ...);
  return layout;
}

/// Two reductions that may be performed in either order.
constexpr bool commute(ReduceOp first, ReduceOp second) {
  return first == second || (is_linear(first) && is_linear(second));
}

template <int rank, class Placement> constexpr bool dimension_fits() {
  using Traits = PlacementTraits<Placement>;
  return Traits::kind != PlacementKind::shard || (Traits::dimension >= 0 && Traits::dimension < rank);
}

template <class Traits>
constexpr bool halo_last = [] {
  if constexpr (requires { Traits::halo_last; })
    return Traits::halo_last;
  else
    return true;
}();
template <class Traits>
constexpr bool halo_fits = [] {
  if constexpr (requires { Traits::halo_valid; })
    return Traits::halo_valid;
  else
    return true;
}();

template <int rank, class Placement> struct PlacementCheck {
  using Traits = PlacementTraits<Placement>;
  static_assert(
      Traits::kind != PlacementKind::none,
      "Layout: a placement must be Shard<dimension, axes...>, Replicate<axes...> or Partial<Op, axes...> with Op one of Sum, Avg, Product, Max, Min, OrderedSum (write it that way)");
  static_assert(
      Traits::axes_valid,
      "Layout: a placement's arguments must be axis tags (derive the tag from axis_tag and give it a name)");
  static_assert(halo_last<Traits>,
                "Shard: a Halo must be the last argument, after the axes (write Shard<0, x, Halo<1>>)");
  static_assert(
      halo_fits<Traits>,
      "Halo: the widths must be at least 0, at most 16383 and not both 0 (leave the Halo out for none)");
  static_assert(
      dimension_fits<rank, Placement>(),
      "Shard: the dimension must be at least 0 and less than the tensor rank (count dimensions from 0)");
  static_assert(Traits::kind == PlacementKind::none || !Traits::axes_valid || !halo_last<Traits> ||
                    Traits::axes::size > 0,
                "Layout: a placement must name at least one axis (leave it out to replicate)");
};

template <int rank, class Placement> constexpr bool placement_valid() {
  using Traits = PlacementTraits<Placement>;
  return Traits::kind != PlacementKind::none && Traits::axes_valid && halo_last<Traits> &&
         halo_fits<Traits> && dimension_fits<rank, Placement>() && Traits::axes::size > 0;
}

template <class NamedAxis, int times> struct AxisCheck {
  static_assert(
      times == 1,
      "Layout: an axis may be named only once (it shards one dimension, or is Partial, or is replicated)");
};

template <class List, class Table> struct AxisChecks;
template <class... Written, class... Axes> struct AxisChecks<AxisList<Written...>, AxisList<Axes...>> {
  template <class NamedAxis>
  static constexpr int times = (0 + ... + (NamedAxis::name == Written::name ? 1 : 0));
  static_assert((true && ... && (sizeof(AxisCheck<Axes, times<Axes>>) != 0)));
  static_assert(sizeof...(Axes) <= max_axes,
                "Layout: a layout may name at most 8 axes (flatten some of them)");
};

template <class... Placements> constexpr bool partials_commute() {
  constexpr std::array<bool, sizeof...(Placements) + 1> partial{
      (PlacementTraits<Placements>::kind == PlacementKind::partial)..., false};
  constexpr std::array<ReduceOp, sizeof...(Placements) + 1> ops{PlacementTraits<Placements>::op...,
                                                                ReduceOp::sum};
  for (std::size_t i = 0; i < partial.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (partial[i] && partial[j] && !commute(ops[i], ops[j]))
        return false;
  return true;
}

template <class Placement> constexpr int halo_dimension() {
  if constexpr (requires { PlacementTraits<Placement>::halo; })
    return PlacementTraits<Placement>::dimension;
  else
    return -1;
}

/// Whether no dimension has two halos.
template <class... Placements> constexpr bool one_halo_each() {
  constexpr std::array<int, sizeof...(Placements) + 1> dimensions{halo_dimension<Placements>()..., -1};
  for (std::size_t i = 0; i < dimensions.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (dimensions[i] >= 0 && dimensions[i] == dimensions[j])
        return false;
  return true;
}

/// Whether the layout has no Halo or no Partial.
template <class... Placements> constexpr bool halos_of_finished() {
  return (true && ... && (halo_dimension<Placements>() < 0)) ||
         (true && ... && (PlacementTraits<Placements>::kind != PlacementKind::partial));
}

template <int rank> constexpr bool rank_valid = rank >= 0 && rank <= max_tensor_rank;

template <int rank, class... Placements> struct LayoutChecks {
  static_assert(rank_valid<rank>, "Layout: the tensor rank must be between 0 and 6 (merge dimensions)");
  static_assert((true && ... && (sizeof(PlacementCheck<rank, Placements>) != 0)));
  static_assert(sizeof(AxisChecks<WrittenAxes<Placements...>, AxesOfPlacements<Placements...>>) != 0);
  static_assert(
      partials_commute<Placements...>(),
      "Layout: Partials of different operations must not be combined, unless they are Sum and Avg (reduce one of them first)");
  static_assert(one_halo_each<Placements...>(),
                "Layout: a dimension may have one Halo (put all its axes into one Shard)");
  static_assert(
      halos_of_finished<Placements...>(),
      "Layout: a layout with a Halo must not be Partial, as halos would copy incomplete sums (complete the sum first, then ask for the Halo)");
};

/// Whether a layout is valid; separate from the checks, since a class with a failed assertion has no usable
/// members.
template <int rank, class... Placements> constexpr bool layout_valid() {
  return rank_valid<rank> && (true && ... && placement_valid<rank, Placements>()) &&
         WrittenAxes<Placements...>::size == AxesOfPlacements<Placements...>::size &&
         AxesOfPlacements<Placements...>::size <= max_axes && partials_commute<Placements...>() &&
         one_halo_each<Placements...>() && halos_of_finished<Placements...>();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
