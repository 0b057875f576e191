// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Run-time properties of a transition, for its runner: trivial axes dropped, reduction orders, bytes.

#include <shardwright/core/config.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/transition_plan.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The layout without the axes of extent 1: it describes the same blocks.
[[nodiscard]] constexpr LayoutValue without_trivial_axes(const LayoutValue& layout,
                                                         std::span<const int> extents) {
  std::array<int, max_axes> map{};
  for (int axis = 0; axis < max_axes; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    map[i] = i < extents.size() && extents[i] == 1 ? -1 : axis;
  }
  return remap_axes(layout, map);
}

/// @brief The step without the axes of extent 1; one that has no axes left does nothing.
[[nodiscard]] constexpr TransitionStep without_trivial_axes(const TransitionStep& step,
                                                            std::span<const int> extents) {
  TransitionStep out = step;
  out.axes = {};
  for (const int axis : step.axes)
    if (extents[static_cast<std::size_t>(axis)] != 1)
      out.axes.push_back(axis);
  out.before = without_trivial_axes(step.before, extents);
  out.after = without_trivial_axes(step.after, extents);
  return out;
}

/// @brief The moves needed at these extents: axes of extent 1 are ignored, so there are never more moves than
/// compile-time steps, and often fewer.
///
/// Just dropping trivial axes from the compile-time steps would keep detours that only those axes required;
/// this plan avoids them.
[[nodiscard]] constexpr TransitionPlan plan_transition(const LayoutValue& from, const LayoutValue& to,
                                                       std::span<const int> extents) {
  return plan_transition(without_trivial_axes(from, extents), without_trivial_axes(to, extents));
}

/// @brief The order in which a reducing step combines a group whose ranks are numbered in mesh order, major
/// to minor.
///
/// A merged step reduces axis by axis, as the single steps that it replaces: reduce_scatter in the order of
/// its axes (shard left to right), all_reduce in the reverse order (unshard right to left). Every axis is one
/// level; axes of extent 1 are left out, and a single level is no level.
/// @param extents per axis of the table
/// @param mesh_order axes of the table, major to minor as in the mesh.
[[nodiscard]] constexpr ReductionOrder
reduction_order(const TransitionMove& move, std::span<const int> extents, std::span<const int> mesh_order) {
  ReductionOrder order;
  for (int i = 0; i < move.axes.count; ++i) {
    const int axis = move.kind == StepKind::all_reduce ? move.axes[move.axes.count - 1 - i] : move.axes[i];
    const int extent = extents[static_cast<std::size_t>(axis)];
    if (extent == 1)
      continue;
    int stride = 1;
    for (std::size_t m = mesh_order.size(); m-- > 0 && mesh_order[m] != axis;)
      if (move.axes.contains(mesh_order[m]))
        stride *= extents[static_cast<std::size_t>(mesh_order[m])];
    order.levels[static_cast<std::size_t>(order.count++)] = {extent, stride};
  }
  if (order.count == 1)
    return {};
  return order;
}

/// @brief Ranks in the group of a move, on a mesh of these extents.
[[nodiscard]] constexpr std::int64_t group_size(const TransitionMove& move, std::span<const int> extents) {
  std::int64_t ranks = 1;
  for (const int axis : move.axes)
    ranks *= extents[static_cast<std::size_t>(axis)];
  return ranks;
}

namespace detail {

/// Elements in a rank's halos that come from other ranks.
[[nodiscard]] constexpr std::int64_t halo_elements(const LayoutValue& layout, std::span<const int> extents,
                                                   std::span<const int> coordinates,
                                                   std::span<const std::int64_t> shape) {
  std::int64_t owned = 1;
  std::int64_t all = 1;
  for (int d = 0; d < layout.tensor_rank; ++d) {
    const std::int64_t extent = shape[static_cast<std::size_t>(d)];
    const DimensionBlock block = dimension_block(layout, d, extents, coordinates, extent);
    const DimensionHalo halo = layout.halo(d);
    const bool ring = halo.periodic();
    owned *= block.size + (ring && block.size == extent ? halo.width() : 0);
    all *= block.size + (ring || block.offset > 0 ? halo.before() : 0) +
           (ring || block.offset + block.size < extent ? halo.after() : 0);
  }
  return all - owned;
}

} // namespace detail

/// @brief Elements that the rank at `coordinates` sends or receives in one step, whichever is more, in a
/// bandwidth-optimal algorithm (ring or direct).
///
/// all_gather: the elements that it lacks. reduce_scatter: those that it gives away. all_to_all: the larger
/// of both. all_reduce over N ranks: 2 (N - 1) / N of its block, rounded up. exchange_halos: the elements of
/// its halos. Local steps: none.
[[nodiscard]] constexpr std::int64_t moved_elements(const TransitionStep& step, std::span<const int> extents,
                                                    std::span<const int> coordinates,
                                                    std::span<const std::int64_t> shape) {
  const auto elements = [&](const LayoutValue& layout) {
    std::int64_t count = 1;
    for (int d = 0; d < layout.tensor_rank; ++d)
      count *= dimension_block(layout, d, extents, coordinates, shape[static_cast<std::size_t>(d)]).size;
    return count;
  };
  const std::int64_t ranks = group_size(step, extents);
  if (ranks == 1 || !detail::is_collective(step.kind))
    return 0;
  const std::int64_t before = elements(step.before);
  const std::int64_t after = elements(step.after);
  if (step.kind == StepKind::exchange_halos)
    return detail::halo_elements(step.after, extents, coordinates, shape);
  if (step.kind == StepKind::all_gather)
    return after - before;
  if (step.kind == StepKind::reduce_scatter)
    return before - after;
  if (step.kind == StepKind::all_reduce)
    return ceil_div(2 * before * (ranks - 1), ranks);
  // all_to_all: the rank keeps its old range of one dimension times its new range of the other.
  const auto size = [&](const LayoutValue& layout, int d) {
    return dimension_block(layout, d, extents, coordinates, shape[static_cast<std::size_t>(d)]).size;
  };
  std::int64_t kept = 1;
  for (int d = 0; d < step.before.tensor_rank; ++d) {
    const std::int64_t was = size(step.before, d);
    const std::int64_t is = size(step.after, d);
    kept *= was < is ? was : is;
  }
  return (before > after ? before : after) - kept;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
