// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transition<From, To>: the collectives that lead from one layout to another, derived from the types.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/transition_plan.hpp>
#include <shardwright/layout/transition_runtime.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Kinds of steps as types, for `Transition<From, To>::count<AllReduce>`.
struct Slice {
  static constexpr StepKind value = StepKind::slice;
};
/// @brief Every rank gets the whole dimension.
struct AllGather {
  static constexpr StepKind value = StepKind::all_gather;
};
/// @brief An axis moves from one dimension to another.
struct AllToAll {
  static constexpr StepKind value = StepKind::all_to_all;
};
/// @brief The ranks' parts are combined, and each rank keeps one chunk.
struct ReduceScatter {
  static constexpr StepKind value = StepKind::reduce_scatter;
};
/// @brief The ranks' parts are combined, and each rank keeps the complete result.
struct AllReduce {
  static constexpr StepKind value = StepKind::all_reduce;
};

/// @brief Every rank gets copies of its neighbours' elements around its block.
struct ExchangeHalos {
  static constexpr StepKind value = StepKind::exchange_halos;
};
/// @brief Every rank keeps what it owns.
struct DropHalos {
  static constexpr StepKind value = StepKind::drop_halos;
};

namespace detail {

/// The error sentences for one axis; its name is in the trace.
template <class Axis, TransitionFault fault> struct TransitionOver {
  static_assert(fault != TransitionFault::shard_to_partial,
                "Transition: Shard cannot become Partial (ask for Replicate, or keep the Shard)");
  static_assert(
      fault != TransitionFault::partial_to_other_partial,
      "Transition: a Partial cannot become a Partial of another operation (complete it first: ask for Replicate or Shard)");
  static_assert(
      fault != TransitionFault::replicate_to_partial,
      "Transition: a replicated value cannot become Partial (it is already complete: keep it replicated or ask for Shard)");
};

/// Whether both layouts describe rows of the same dispatch, or neither describes rows grouped by expert.
template <class From, class To> constexpr bool same_rows() {
  if constexpr (is_ragged<From> && is_ragged<To>)
    return std::is_same_v<typename From::template with_columns<TensorLayout<1>>,
                          typename To::template with_columns<TensorLayout<1>>>;
  else
    return any_invalid<From, To> || is_ragged<From> == is_ragged<To>;
}

template <class From, class To, bool internal> struct TransitionTable {
  using axis_list = UnionOfAxes<typename From::axis_list, typename To::axis_list>;
  static constexpr bool few_axes = axis_list::size <= max_axes;
  static constexpr bool invalid = any_invalid<From, To>;
  static constexpr bool same_rank = invalid || From::tensor_rank == To::tensor_rank;
  static constexpr bool same_rows = detail::same_rows<From, To>();
  static constexpr LayoutValue from_value = few_axes ? value_over<axis_list, From>() : LayoutValue{};
  static constexpr LayoutValue to_value = few_axes ? value_over<axis_list, To>() : LayoutValue{};

  static constexpr TransitionFault fault_of(int axis) {
    return few_axes && same_rank && same_rows && !invalid
               ? transition_fault(from_value, to_value, axis, internal)
               : TransitionFault::none;
  }
  static constexpr bool few_changes = !few_axes || !same_rank || !same_rows || invalid ||
                                      changed_axes(from_value, to_value) <= max_changed_axes;
  static constexpr bool legal = [] {
    bool ok = few_axes && same_rank && same_rows && few_changes && !invalid;
    for (int axis = 0; axis < axis_list::size; ++axis)
      ok = ok && fault_of(axis) == TransitionFault::none;
    return ok;
  }();
};

template <class Table, class Axes, class Indices> struct TransitionAxisChecks;
template <class Table, class... Axes, int... indices>
struct TransitionAxisChecks<Table, AxisList<Axes...>, std::integer_sequence<int, indices...>>
    : TransitionOver<Axes, Table::fault_of(indices)>... {};

template <class From, class To, bool internal>
struct TransitionChecks
    : TransitionAxisChecks<
          TransitionTable<From, To, internal>, typename TransitionTable<From, To, internal>::axis_list,
          std::make_integer_sequence<int, TransitionTable<From, To, internal>::axis_list::size>> {
  using Table = TransitionTable<From, To, internal>;
  static_assert(
      Table::same_rows,
      "Ragged: rows grouped by expert can leave their layout only by combine(), and tokens enter it only by dispatch() (call these instead)");
  static_assert(Table::same_rank || !Table::same_rows,
                "Transition: both layouts must have the same tensor rank (redistribute does not reshape)");
  static_assert(Table::few_axes,
                "Transition: the layouts may name at most 8 axes together (flatten some of them)");
  static_assert(Table::few_changes,
                "Transition: at most 6 axes may change at once (go through an intermediate layout)");
};

/// The axes of the dimensions that have halos, in table order.
constexpr AxisSequence halo_axes(const LayoutValue& layout) {
  AxisSequence out;
  for (int axis = 0; axis < max_axes; ++axis) {
    const int dimension = layout.dimension_of(axis);
    if (dimension >= 0 && !layout.halo(dimension).empty())
      out.push_back(axis);
  }
  return out;
}

/// Halos are dropped first and exchanged last; in between is a transition of the owned elements.
constexpr TransitionPlan plan_with_halos(const LayoutValue& from, const LayoutValue& to) {
  TransitionPlan plan;
  if (from == to)
    return plan;
  const auto add = [&plan](const TransitionMove& move) {
    plan.moves[static_cast<std::size_t>(plan.count++)] = move;
  };
  if (from.has_halos())
    add({.kind = StepKind::drop_halos, .axes = halo_axes(from)});
  for (const TransitionMove& move : plan_transition(from.without_halos(), to.without_halos()))
    add(move);
  if (to.has_halos())
    add({.kind = StepKind::exchange_halos, .axes = halo_axes(to)});
  return plan;
}

/// Coordinates half along every axis.
constexpr std::array<int, max_axes> middle_of(std::span<const int> extents) {
  std::array<int, max_axes> out{};
  for (std::size_t axis = 0; axis < extents.size(); ++axis)
    out[axis] = extents[axis] / 2;
  return out;
}

template <class Table> constexpr TransitionPlan plan_of() {
  if constexpr (!Table::legal)
    return {};
  else if constexpr (Table::from_value.has_halos() || Table::to_value.has_halos())
    return plan_with_halos(Table::from_value, Table::to_value);
  else
    return plan_transition(Table::from_value, Table::to_value);
}

template <int count>
constexpr std::array<TransitionStep, static_cast<std::size_t>(count)>
steps_of(const TransitionPlan& plan, LayoutValue layout, const LayoutValue& to) {
  std::array<TransitionStep, static_cast<std::size_t>(count)> steps{};
  for (int i = 0; i < count; ++i) {
    TransitionStep& step = steps[static_cast<std::size_t>(i)];
    static_cast<TransitionMove&>(step) = plan.moves[static_cast<std::size_t>(i)];
    step.before = layout;
    step.after = layout = step.kind == StepKind::exchange_halos ? to : apply(step, layout);
  }
  return steps;
}

template <class From, class To, bool internal> struct BasicTransition {
private:
  static_assert(sizeof(TransitionChecks<From, To, internal>) != 0);
  using Table = TransitionTable<From, To, internal>;
  static constexpr TransitionPlan plan = plan_of<Table>();

public:
  /// Axes of both layouts, sorted by name; the indices of values and steps refer to it.
  using axis_list = typename Table::axis_list;
  static constexpr auto axes = axis_list::names;
  static constexpr LayoutValue from_value = Table::from_value;
  static constexpr LayoutValue to_value = Table::to_value;
  /// The steps in order, cheapest at a nominal extent of 2 per axis; empty for a transition that is an error.
  static constexpr std::array<TransitionStep, static_cast<std::size_t>(plan.count)> steps =
      steps_of<plan.count>(plan, from_value, to_value);
  static constexpr bool is_identity = plan.count == 0;

  /// @brief Number of steps of a kind: Slice, AllGather, AllToAll, ReduceScatter, AllReduce.
  template <class Kind>
  static constexpr int count = [] {
    int found = 0;
    for (const TransitionStep& step : steps)
      found += step.kind == Kind::value ? 1 : 0;
    return found;
  }();
  /// Number of steps that communicate.
  static constexpr int collectives = [] {
    int found = 0;
    for (const TransitionStep& step : steps)
      found += is_collective(step.kind) ? 1 : 0;
    return found;
  }();

  /// @brief Bytes that rank 0, whose blocks are the largest, sends or receives (whichever is more) at
  /// run-time extents; for halos, those of a rank in the middle of the mesh.
  /// @param extents per axis of `axes`
  /// @param shape of the whole tensor.
  [[nodiscard]] static constexpr std::int64_t
  bytes(std::span<const int> extents, std::span<const std::int64_t> shape, std::size_t element_bytes) {
    constexpr std::array<int, max_axes> first{};
    std::int64_t elements = 0;
    LayoutValue layout = without_trivial_axes(from_value, extents);
    if (from_value.has_halos() && from_value != to_value)
      layout = layout.without_halos();
    for (const TransitionMove& move : plan_transition(from_value, to_value, extents)) {
      TransitionStep step{move, layout, apply(move, layout)};
      elements += moved_elements(step, extents, first, shape);
      layout = step.after;
    }
    if (to_value.has_halos() && from_value != to_value)
      elements += halo_elements(to_value, extents, middle_of(extents), shape);
    return elements * static_cast<std::int64_t>(element_bytes);
  }
};

} // namespace detail

/// @brief The cheapest collectives from layout `From` to layout `To`.
///
/// Fewest bytes at a nominal extent of 2 per axis, then fewest collectives; collectives of one kind over
/// several axes are merged. An impossible transition (Shard to Partial, Partial to a different Partial,
/// replicated to Partial) is an error that names the axis.
template <LayoutType From, LayoutType To> struct Transition : detail::BasicTransition<From, To, false> {};

/// @brief As Transition, but replicated may become Partial<Sum>: the first rank keeps the value, the others
/// hold zero. For operations of the library that add a replicated to a partial value.
template <LayoutType From, LayoutType To>
struct InternalTransition : detail::BasicTransition<From, To, true> {};

} // namespace shardwright::inline SHARDWRIGHT_ABI
