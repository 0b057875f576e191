// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One step of a transition, its effect on a layout, and which transitions are valid.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The kinds of step in a transition. `slice`, `keep_on_first` and `drop_halos` move no bytes between
/// ranks.
enum class StepKind : std::uint8_t {
  slice,
  keep_on_first,
  all_gather,
  all_to_all,
  reduce_scatter,
  all_reduce,
  drop_halos,
  exchange_halos
};

/// @brief Name for messages, such as "all_gather".
[[nodiscard]] constexpr std::string_view name_of(StepKind kind) noexcept {
  switch (kind) {
  case StepKind::slice:
    return "slice";
  case StepKind::keep_on_first:
    return "keep_on_first";
  case StepKind::all_gather:
    return "all_gather";
  case StepKind::all_to_all:
    return "all_to_all";
  case StepKind::reduce_scatter:
    return "reduce_scatter";
  case StepKind::all_reduce:
    return "all_reduce";
  case StepKind::drop_halos:
    return "drop_halos";
  case StepKind::exchange_halos:
    return "exchange_halos";
  }
  return "unknown";
}

namespace detail {

/// Returns whether steps of a kind communicate.
[[nodiscard]] constexpr bool is_collective(StepKind kind) noexcept {
  return kind != StepKind::slice && kind != StepKind::keep_on_first && kind != StepKind::drop_halos;
}

} // namespace detail

/// @brief One local or collective operation over one axis or several axes flattened.
struct TransitionMove {
  StepKind kind = StepKind::slice;
  AxisSequence
      axes{}; ///< Major to minor as they split the dimension; in table order for all_reduce and halos.
  int dimension =
      -1; ///< Dimension that becomes sharded (slice, reduce_scatter, all_to_all) or whole (all_gather).
  int from_dimension = -1;     ///< all_to_all: the dimension that becomes whole.
  ReduceOp op = ReduceOp::sum; ///< reduce_scatter, all_reduce, keep_on_first.

  friend constexpr bool operator==(const TransitionMove&, const TransitionMove&) = default;
};

/// @brief A move with the layouts before and after it.
struct TransitionStep : TransitionMove {
  LayoutValue before{};
  LayoutValue after{};
};

/// @brief Axes that one transition may change; the search table has 3^changed entries.
inline constexpr int max_changed_axes = 6;

/// @brief The moves of a transition in order.
struct TransitionPlan {
  static constexpr int max_moves = 3 * max_changed_axes + 2; // two of halos
  std::array<TransitionMove, max_moves> moves{};
  int count = 0;

  [[nodiscard]] constexpr const TransitionMove* begin() const noexcept { return moves.data(); }
  [[nodiscard]] constexpr const TransitionMove* end() const noexcept { return moves.data() + count; }
  [[nodiscard]] constexpr int size() const noexcept { return count; }
};

/// @brief The layout after a move. A halo exchange does not change it: the layouts around the step describe
/// the halos.
[[nodiscard]] constexpr LayoutValue apply(const TransitionMove& move, LayoutValue layout) {
  for (int i = 0; i < move.axes.count; ++i) {
    const int axis = move.axes[i];
    switch (move.kind) {
    case StepKind::slice:
      layout.shard(move.dimension).push_back(axis);
      break;
    case StepKind::keep_on_first:
      layout.set_partial(axis, move.op);
      break;
    case StepKind::all_gather:
      layout.shard(move.dimension).pop_back();
      break;
    case StepKind::all_to_all:
      layout.shard(move.from_dimension).pop_back();
      layout.shard(move.dimension).push_back(axis);
      break;
    case StepKind::reduce_scatter:
      layout.clear_partial(axis);
      layout.shard(move.dimension).push_back(axis);
      break;
    case StepKind::all_reduce:
      layout.clear_partial(axis);
      break;
    case StepKind::drop_halos:
      layout.halos = {};
      break;
    case StepKind::exchange_halos:
      break;
    }
  }
  return layout;
}

/// @brief Why a transition is impossible over an axis.
enum class TransitionFault : std::uint8_t {
  none,
  shard_to_partial,
  partial_to_other_partial,
  replicate_to_partial
};

/// @brief The fault of one axis; `internal` allows replicated to Partial<Sum>, which only the library may
/// request.
[[nodiscard]] constexpr TransitionFault transition_fault(const LayoutValue& from, const LayoutValue& to,
                                                         int axis, bool internal) {
  if (!to.is_partial(axis))
    return TransitionFault::none;
  if (from.is_partial(axis))
    return from.op(axis) == to.op(axis) ? TransitionFault::none : TransitionFault::partial_to_other_partial;
  if (from.dimension_of(axis) >= 0)
    return TransitionFault::shard_to_partial;
  return internal && to.op(axis) == ReduceOp::sum ? TransitionFault::none
                                                  : TransitionFault::replicate_to_partial;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
