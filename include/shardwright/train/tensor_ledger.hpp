// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory that tensors and their transitions take on one rank, counted without any tensor.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/mesh_place.hpp>
#include <shardwright/layout/transition.hpp>
#include <shardwright/layout/transition_runtime.hpp>
#include <shardwright/train/memory_table.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a transition does on one rank: how many steps, and the first of them.
struct LedgerMove {
  int steps = 0;
  StepKind kind = StepKind::slice;
  ReduceOp op = ReduceOp::sum;
  int axis_count = 0;
  std::array<std::string_view, max_axes> axes{};
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;

  /// @brief Whether it is one collective.
  [[nodiscard]] bool one() const noexcept { return steps == 1 && is_collective(kind); }
  /// @brief Whether both may be parts of one collective.
  [[nodiscard]] bool shares_call(const LedgerMove& other) const noexcept {
    return kind == other.kind && op == other.op && axis_count == other.axis_count && axes == other.axes;
  }
};

/// @brief A ledger of tensors by layout and shape, as ShardedTensor and redistribute would take them from the
/// pool of one rank.
///
/// A pass written with it, tensor by tensor in the order of the computation, gives the peak of that
/// computation.
class TensorLedger {
public:
  using Block = MemoryLedger::Block;

  explicit TensorLedger(const MeshPlace& place) : place_(place) {}

  [[nodiscard]] const MeshPlace& place() const noexcept { return place_; }
  [[nodiscard]] MemoryLedger& ledger() noexcept { return ledger_; }

  /// @brief A new tensor.
  template <LayoutType L, class Element, std::size_t rank>
  [[nodiscard]] Block tensor(MemoryKind kind, const std::array<std::int64_t, rank>& shape) {
    return ledger_.take(kind, place_.elements<L>(shape) * static_cast<std::int64_t>(sizeof(Element)));
  }
  /// @brief A vector that every rank has whole.
  template <class Element>
  [[nodiscard]] Block vector(MemoryKind kind, std::size_t elements) {
    return ledger_.take(kind, static_cast<std::int64_t>(elements * sizeof(Element)));
  }

  /// @brief The tensor `from`, an owner, in another layout: its own memory where nothing moves or where one
  /// all_reduce may write over it; else a new block, with temporaries between several steps, and `from` stays
  /// what it was.
  template <LayoutType From, LayoutType To, class Element, std::size_t rank>
  [[nodiscard]] Block redistributed(MemoryKind kind, Block&& from,
                                    const std::array<std::int64_t, rank>& shape) {
    Block to = moved<From, To, Element>(kind, from, shape, from.use_count() == 1);
    if (to == from)
      from.reset();
    return to;
  }
  /// @brief The same of a tensor that stays.
  template <LayoutType From, LayoutType To, class Element, std::size_t rank>
  [[nodiscard]] Block redistributed_copy(MemoryKind kind, const Block& from,
                                         const std::array<std::int64_t, rank>& shape) {
    return moved<From, To, Element>(kind, from, shape, false);
  }

  /// @brief The transition of a tensor of this shape on this rank.
  template <LayoutType From, LayoutType To, class Element, std::size_t rank>
  [[nodiscard]] LedgerMove move(const std::array<std::int64_t, rank>& shape) const {
    using Steps = Transition<From, To>;
    const MeshPlace::Bound bound = place_.bind(Steps::axes);
    const TransitionPlan plan = plan_transition(Steps::from_value, Steps::to_value, bound.extents);
    LedgerMove out{.steps = plan.count};
    if (plan.count == 0)
      return out;
    const TransitionMove& first = plan.moves[0];
    out.kind = first.kind;
    out.op = first.op;
    for (const int axis : first.axes)
      out.axes[static_cast<std::size_t>(out.axis_count++)] = Steps::axes[static_cast<std::size_t>(axis)];
    const auto bytes = static_cast<std::int64_t>(sizeof(Element));
    out.bytes_before = place_.elements<From>(shape) * bytes;
    out.bytes_after = place_.elements<To>(shape) * bytes;
    return out;
  }

private:
  template <LayoutType From, LayoutType To, class Element, std::size_t rank>
  [[nodiscard]] Block moved(MemoryKind kind, const Block& from, const std::array<std::int64_t, rank>& shape,
                            bool given_away) {
    using Steps = Transition<From, To>;
    const MeshPlace::Bound bound = place_.bind(Steps::axes);
    const TransitionPlan plan = plan_transition(Steps::from_value, Steps::to_value, bound.extents);
    const bool all_reduce = plan.count == 1 && plan.moves[0].kind == StepKind::all_reduce;
    if (plan.count == 0 || (all_reduce && given_away))
      return from;
    Block to = tensor<To, Element>(kind, shape);
    LayoutValue layout = without_trivial_axes(Steps::from_value, bound.extents);
    Block between;
    for (int i = 0; i + 1 < plan.count; ++i) {
      const TransitionMove& move = plan.moves[static_cast<std::size_t>(i)];
      layout = apply(move, layout);
      if (move.kind != StepKind::all_reduce || !between)
        between = ledger_.take(MemoryKind::temporaries,
                               block_of(layout, bound, shape) * static_cast<std::int64_t>(sizeof(Element)));
    }
    return to;
  }

  template <std::size_t rank>
  [[nodiscard]] static std::int64_t block_of(const LayoutValue& layout, const MeshPlace::Bound& bound,
                                             const std::array<std::int64_t, rank>& shape) {
    std::int64_t count = 1;
    for (std::size_t d = 0; d < rank; ++d)
      count *= dimension_block(layout, static_cast<int>(d), bound.extents, bound.coordinates, shape[d]).size;
    return count;
  }

  MeshPlace place_;
  MemoryLedger ledger_; // outlives the blocks by the rule of MemoryLedger
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
