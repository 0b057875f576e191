// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief ZeRO as layouts: where parameters are stored, gradients accumulated and optimizer state kept.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/quantized.hpp>

#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The indices in a table of the axes of a list.
template <class Table, class... Axes> [[nodiscard]] constexpr AxisSequence indices_of(AxisList<Axes...>) {
  AxisSequence out;
  for (const std::string_view name : AxisList<Axes...>::names)
    out.push_back(axis_index(Table::names, name));
  return out;
}

template <class Axes> struct SortedList;
template <class... Axes> struct SortedList<AxisList<Axes...>> { using type = SortedAxes<Axes...>; };

template <class Described, class Axes> struct ShardedOverHolder {
  using table = UnionOfAxes<typename Described::axis_list, typename SortedList<Axes>::type>;
  static constexpr LayoutValue value = [] {
    LayoutValue layout = value_over<table, Described>();
    for (const int axis : indices_of<table>(Axes{}))
      if (layout.is_replicated(axis))
        layout.shard(0).push_back(axis);
    return layout;
  }();
};

template <class Raw, class State, class Axes> struct ReducedHolder {
  using table = UnionOfAxes<UnionOfAxes<typename Raw::axis_list, typename State::axis_list>,
                            typename SortedList<Axes>::type>;
  static constexpr LayoutValue value = [] {
    const LayoutValue raw = value_over<table, Raw>();
    LayoutValue layout = value_over<table, State>();
    const AxisSequence reduced = indices_of<table>(Axes{});
    for (int axis = 0; axis < table::size; ++axis)
      if (raw.is_partial(axis) && layout.is_replicated(axis) && !reduced.contains(axis))
        layout.set_partial(axis, raw.op(axis));
    return layout;
  }();
};

} // namespace detail

/// @brief Layout `L` with dimension 0 split further over the axes of a list, in that order; axes that `L`
/// already uses stay as they are.
template <LayoutType L, class Axes>
using ShardedOver =
    detail::LayoutOf<typename detail::ShardedOverHolder<L, Axes>::table, detail::ShardedOverHolder<L, Axes>>;

/// @brief Layout of a raw gradient that is reduced over the axes of a list: as `State` there, and Partial
/// over every other axis over which `Raw` is Partial.
template <LayoutType Raw, LayoutType State, class Axes>
using ReducedGradient = detail::LayoutOf<typename detail::ReducedHolder<Raw, State, Axes>::table,
                                         detail::ReducedHolder<Raw, State, Axes>>;

/// @name Choices of sharding over the axes of a list
///
/// A choice has four members: `axes`, over which it shards and which are reduced first, major to minor; and
/// three functions of a parameter's compute layout, which products read, and of the layout that propagation
/// gives its raw gradient: `Stored`, `State` (of optimizer and reduced gradient) and `Accumulator`, which is
/// the raw gradient's layout (one reduction in a step) or ReducedGradient (one for each microbatch). The
/// collectives follow (Rajbhandari et al., arXiv 1910.02054). Axes that already shard a parameter, such as
/// those that own experts, do not shard it further. Ranks along an axis that the parameter's gradient is
/// Partial over and that is not in `axes` hold replicas of a shard group (HSDP).
/// @{

/// @brief Plain data parallelism: parameters and optimizer state replicated, gradients summed once per step
/// (R, P, R).
template <class Axes> struct DataParallelOver {
  using axes = Axes;
  template <LayoutType Compute> using Stored = Compute;
  template <LayoutType, LayoutType Raw> using Accumulator = Raw;
  template <LayoutType Compute> using State = Compute;
};

/// @brief The optimizer state is sharded (R, P, S): gradients are reduce-scattered once per step, updated
/// parameters gathered.
template <class Axes> struct Zero1Over : DataParallelOver<Axes> {
  template <LayoutType Compute> using State = ShardedOver<Compute, Axes>;
};

/// @brief Gradients and optimizer state are sharded (R, S, S): gradients are reduce-scattered for each
/// microbatch.
template <class Axes> struct Zero2Over : Zero1Over<Axes> {
  template <LayoutType Compute, LayoutType Raw>
  using Accumulator = ReducedGradient<Raw, ShardedOver<Compute, Axes>, Axes>;
};

/// @brief Parameters too (S, S, S): they are gathered for each use.
template <class Axes> struct Zero3Over : Zero2Over<Axes> {
  template <LayoutType Compute> using Stored = ShardedOver<Compute, Axes>;
};
/// @}

/// @name The same over dp and cp, which split the tokens of a dense model
/// @{
struct DataParallel : DataParallelOver<AxisList<axis::dp, axis::cp>> {};
struct Zero1 : Zero1Over<AxisList<axis::dp, axis::cp>> {};
struct Zero2 : Zero2Over<AxisList<axis::dp, axis::cp>> {};
struct Zero3 : Zero3Over<AxisList<axis::dp, axis::cp>> {};
/// @}

/// @brief Modifies a choice to use unsharded accumulators: one reduction per step instead of one per
/// microbatch.
template <class Zero> struct ReduceOncePerStep : Zero {
  template <LayoutType, LayoutType Raw> using Accumulator = Raw;
};

/// @brief Modifies a choice: the parameters are frozen. They are stored and gathered as the choice says, but
/// have no gradient and no optimizer state. With a `Form`, Int8 or NormalFloat4, they are stored and gathered
/// in that form of few bits, too.
template <class Zero, class Form = void> struct Frozen : Zero {
  static_assert(
      std::is_void_v<Form> || detail::is_form<Form>,
      "Frozen: the form of quantized weights must be Int8 or NormalFloat4 (write Frozen<Zero3, NormalFloat4>, or Frozen<Zero3> for weights in their own element type)");
  using Trained = Zero; ///< The choice for parameters of the same model that are trained.
  template <LayoutType, LayoutType Raw> using Accumulator = Raw;
  template <LayoutType Compute> using State = typename Zero::template Stored<Compute>;
};

/// @brief Modifies the layouts of a model, such as DecoderLayouts: all of its parameters are frozen. With a
/// `Form`, the matrices of its Linear and GroupedLinear layers, but not those of routers, are quantized.
template <class Layouts, class Form = void> struct FrozenLayouts : Layouts {
  using Zero = Frozen<typename Layouts::Zero, Form>;
};

namespace detail {
template <class Zero> inline constexpr bool trains = true;
template <class Zero, class Form> inline constexpr bool trains<Frozen<Zero, Form>> = false;

/// The form in which a choice stores weights, or void; and the choice for parameters in their element type.
template <class Zero> struct FormOf {
  using type = void;
  using Whole = Zero;
};
template <class Zero, class Form> struct FormOf<Frozen<Zero, Form>> {
  using type = Form;
  using Whole = Frozen<Zero>;
};
} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
