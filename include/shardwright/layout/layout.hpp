// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layout: how a tensor is spread over named mesh axes, as a type with one canonical spelling.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/detail/layout_checks.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/placement.hpp>

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The canonical class behind `Layout`: shards by dimension, then partials, their axes sorted by name.
template <int rank, class... Placements> struct TensorLayout {
  /// Dimensions of the tensor.
  static constexpr int tensor_rank = rank;
  /// Axes named by the layout, sorted by name.
  using axis_list = detail::AxesOfPlacements<Placements...>;
  /// Names of the axes: the table that `value` refers to.
  static constexpr auto axes = axis_list::names;
  /// The layout as a value over `axes`.
  static constexpr LayoutValue value = detail::layout_value<axis_list, rank, Placements...>();

  /// @brief Index of an axis in the table, or -1 if the layout does not name it (it is replicated there).
  template <Axis A> static constexpr int index_of = axis_index(axes, A::name);
  /// @brief Dimension that an axis shards, or -1.
  template <Axis A>
  static constexpr int shard_dimension = index_of<A> < 0 ? -1 : value.dimension_of(index_of<A>);
  /// @brief True if the tensor is Partial over the axis.
  template <Axis A>
  static constexpr bool is_partial = index_of<A> >= 0 && value.is_partial(index_of<A> < 0 ? 0 : index_of<A>);
};

/// @brief The layout of the result of a rejected operation: everything derived from it is silently invalid
/// too, so that one mistake prints one error.
struct InvalidLayout {
  static constexpr int tensor_rank = 0;
  using axis_list = AxisList<>;
  static constexpr auto axes = axis_list::names;
  static constexpr LayoutValue value{};
};

namespace detail {

template <class Type> inline constexpr bool is_layout = false;
template <> inline constexpr bool is_layout<InvalidLayout> = true;
template <int rank, class... Placements>
inline constexpr bool is_layout<TensorLayout<rank, Placements...>> = true;

/// Whether a layout describes rows grouped by expert (layout/ragged.hpp).
template <class Type> inline constexpr bool is_ragged = false;
template <class... Layouts> inline constexpr bool any_ragged = (false || ... || is_ragged<Layouts>);

/// One placement of a layout value.
struct PlacementEntry {
  bool partial = false;
  int dimension = 0;
  ReduceOp op = ReduceOp::sum;
  AxisSequence axes{};
  DimensionHalo halo{};
};

/// The placements of a layout in canonical order: shards by dimension, then one Partial per operation.
struct PlacementEntries {
  std::array<PlacementEntry, max_tensor_rank + 6> items{}; // there are 6 operations
  int count = 0;
};

constexpr PlacementEntries placements_of(const LayoutValue& layout) {
  PlacementEntries out;
  for (int d = 0; d < layout.tensor_rank; ++d)
    if (!layout.shard(d).empty())
      out.items[static_cast<std::size_t>(out.count++)] = {false, d, ReduceOp::sum, layout.shard(d),
                                                          layout.halo(d)};
  const auto first_partial = static_cast<std::size_t>(out.count);
  for (int axis = 0; axis < max_axes; ++axis) {
    if (!layout.is_partial(axis))
      continue;
    std::size_t place = first_partial;
    while (place < static_cast<std::size_t>(out.count) && out.items[place].op < layout.op(axis))
      ++place;
    if (place == static_cast<std::size_t>(out.count) || out.items[place].op != layout.op(axis)) {
      for (auto i = static_cast<std::size_t>(out.count++); i > place; --i)
        out.items[i] = out.items[i - 1];
      out.items[place] = {true, 0, layout.op(axis), {}, {}};
    }
    out.items[place].axes.push_back(axis);
  }
  return out;
}

// Templates of namespace scope: nvcc rejects a constant in a member template that refers to the enclosing
// class.
template <class Holder> struct EntriesOf {
  static constexpr PlacementEntries value = placements_of(Holder::value);
};
template <class Holder, int index> struct EntryOf {
  static constexpr PlacementEntry value = EntriesOf<Holder>::value.items[static_cast<std::size_t>(index)];
};

template <int dimension, int halo_code, class... Axes> struct ShardWith {
  static constexpr DimensionHalo halo{halo_code};
  using type = std::conditional_t<halo.periodic(),
                                  Shard<dimension, Axes..., PeriodicHalo<halo.before(), halo.after()>>,
                                  Shard<dimension, Axes..., Halo<halo.before(), halo.after()>>>;
};
template <int dimension, class... Axes> struct ShardWith<dimension, 0, Axes...> {
  using type = Shard<dimension, Axes...>;
};

template <class Table, class Entry, class Positions> struct PlacementFromValue;
template <class Table, class Entry, int... positions>
struct PlacementFromValue<Table, Entry, std::integer_sequence<int, positions...>> {
  using type = std::conditional_t<
      Entry::value.partial,
      Partial<ReductionTag<Entry::value.op>, AxisAt<Entry::value.axes[positions], Table>...>,
      typename ShardWith<Entry::value.dimension, Entry::value.halo.code,
                         AxisAt<Entry::value.axes[positions], Table>...>::type>;
};

template <class Table, class Holder, class Indices> struct LayoutFromValue;
template <class Table, class Holder, int... indices>
struct LayoutFromValue<Table, Holder, std::integer_sequence<int, indices...>> {
  using type =
      TensorLayout<Holder::value.tensor_rank,
                   typename PlacementFromValue<
                       Table, EntryOf<Holder, indices>,
                       std::make_integer_sequence<int, EntryOf<Holder, indices>::value.axes.count>>::type...>;
};

/// The layout type of `Holder::value`, a LayoutValue over the axes of `Table`.
template <class Table, class Holder>
using LayoutOf =
    typename LayoutFromValue<Table, Holder,
                             std::make_integer_sequence<int, EntriesOf<Holder>::value.count>>::type;

/// The placements as written, checked. An invalid layout is reported once and then treated as fully
/// replicated.
template <int rank, class... Placements> struct WrittenLayout {
  static_assert(sizeof(LayoutChecks<rank, Placements...>) != 0);
  static constexpr bool valid = layout_valid<rank, Placements...>();
  using table = std::conditional_t<valid, AxesOfPlacements<Placements...>, AxisList<>>;
  struct Holder {
    static constexpr LayoutValue value = [] {
      if constexpr (valid)
        return layout_value<AxesOfPlacements<Placements...>, rank, Placements...>();
      else
        return LayoutValue{rank < 0 || rank > max_tensor_rank ? 0 : rank, {}, {}, {}, {}};
    }();
  };
  using type = LayoutOf<table, Holder>;
};

/// The value of a layout over a table that holds all its axes.
template <class Table, class Described> constexpr LayoutValue value_over() {
  std::array<int, max_axes> map{};
  std::size_t axis = 0;
  for (const auto& name : Described::axes)
    map[axis++] = axis_index(Table::names, name);
  return remap_axes(Described::value, map);
}

/// Whether any of the layouts represents an error that was already reported.
template <class... Layouts>
inline constexpr bool any_invalid = (false || ... || std::is_same_v<Layouts, InvalidLayout>);

} // namespace detail

namespace detail {

template <class Described> struct WithoutHalosHolder {
  static constexpr LayoutValue value = Described::value.without_halos();
};
template <class Described, bool has_halos> struct WithoutHalosOf { using type = Described; };
template <class Described> struct WithoutHalosOf<Described, true> {
  using type = LayoutOf<typename Described::axis_list, WithoutHalosHolder<Described>>;
};

/// Whether blocks of a layout carry elements of their neighbours.
template <class Described> inline constexpr bool has_halos = Described::value.has_halos();

} // namespace detail

/// @brief The same layout without its halos: that of the elements that the ranks own.
template <class Described>
using WithoutHalos = typename detail::WithoutHalosOf<Described, detail::has_halos<Described>>::type;

/// @brief A layout type, as `Layout` makes it.
template <class Type>
concept LayoutType = detail::is_layout<std::remove_cv_t<Type>>;

/// @brief The layout of a tensor with `tensor_rank` dimensions: `Layout<2, Shard<0, dp>, Partial<Sum, tp>>`.
///
/// Axes that are not named are replicated. The order of the placements does not change the type; the order of
/// the axes inside one `Shard` does: they split the dimension from outermost to innermost.
template <int tensor_rank, class... Placements>
using Layout = typename detail::WrittenLayout<tensor_rank, Placements...>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
