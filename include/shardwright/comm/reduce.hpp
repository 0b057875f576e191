// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reductions over ranks in a fixed nested order, on contiguous runs and strided blocks.

#include <shardwright/comm/reduce_kernels.hpp>
#include <shardwright/core/strided_block.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Reduces runs of all ranks in the order that a ReductionOrder gives; holds the scratch that nested orders
/// need.
///
/// A nested order works on pieces that stay in the L1 cache: each level reduces the results of the level
/// below with the same kernel as an unmerged collective would, so the results agree bit for bit.
class NestedReduction {
public:
  explicit NestedReduction(int ranks) : ranks_(ranks) {}

  /// Prepares for one call; grows the scratch only on the first nested order.
  void begin(ElementType type, ReduceOp op, const ReductionOrder& order) {
    type_ = type;
    op_ = op;
    depth_ = 0;
    std::size_t inputs = 0;
    for (int level = 0; level < order.count; ++level) {
      const ReductionOrder::Level& candidate = order.levels[static_cast<std::size_t>(level)];
      if (candidate.extent <= 1)
        continue;
      levels_[depth_++] = candidate;
      inputs += static_cast<std::size_t>(candidate.extent);
    }
    tree_ = is_tree();
    if (tree_ || (depth_ == 1 && levels_[0].stride == 1))
      depth_ = 0;
    if (depth_ == 0)
      return;
    if (pointers_.size() < inputs)
      pointers_.resize(inputs);
    if (scratch_.size() < inputs * piece_bytes + line_bytes)
      scratch_.resize(inputs * piece_bytes + line_bytes);
  }

  /// Reduces `count` elements at `ins[rank]` of every rank into every output. Any output may be one of the
  /// inputs.
  void run(const void* const* ins, void* const* outs, int out_count, std::size_t count,
           bool stream) noexcept {
    if (count == 0)
      return;
    if (depth_ == 0) {
      reduce_run(type_, op_, {ins, ranks_, outs, out_count, count, divisor(ranks_), stream, tree_});
      return;
    }
    const std::size_t step = piece_bytes / size_of(type_);
    for (std::size_t at = 0; at < count; at += step) {
      const std::size_t length = std::min(step, count - at);
      for (int j = 0; j < out_count; ++j)
        outs_[static_cast<std::size_t>(j)] = static_cast<std::byte*>(outs[j]) + at * size_of(type_);
      level(depth_ - 1, 0, ins, at, length, 0, outs_.data(), out_count, stream);
    }
  }

private:
  static constexpr std::size_t piece_bytes = 2048;

  /// Whether the levels are a binary tree that one kernel adds in registers, with the same rounding.
  [[nodiscard]] bool is_tree() const noexcept {
    bool binary = (ranks_ == 4 || ranks_ == 8) && ranks_ == 1 << depth_ && op_ == ReduceOp::sum &&
                  (type_ == ElementType::float32 || type_ == ElementType::float64);
    for (std::size_t level = 0; level < depth_; ++level)
      binary = binary && levels_[level].extent == 2 && levels_[level].stride == 1 << level;
    return binary;
  }

  void level(std::size_t depth, int base, const void* const* ins, std::size_t at, std::size_t length,
             std::size_t used, void* const* outs, int out_count, bool stream) noexcept {
    const auto [extent, stride] = levels_[depth];
    for (int i = 0; i < extent; ++i) {
      const auto slot = used + static_cast<std::size_t>(i);
      const int rank = base + i * stride;
      if (depth == 0) {
        pointers_[slot] = static_cast<const std::byte*>(ins[rank]) + at * size_of(type_);
      } else {
        void* piece = aligned_scratch() + slot * piece_bytes;
        level(depth - 1, rank, ins, at, length, used + static_cast<std::size_t>(extent), &piece, 1, false);
        pointers_[slot] = piece;
      }
    }
    reduce_run(type_, op_,
               {pointers_.data() + used, extent, outs, out_count, length, divisor(extent), stream});
  }

  [[nodiscard]] int divisor(int inputs) const noexcept { return op_ == ReduceOp::average ? inputs : 1; }

  [[nodiscard]] std::byte* aligned_scratch() noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return scratch_.data() + (line_bytes - address % line_bytes) % line_bytes;
  }

  int ranks_;
  ElementType type_ = ElementType::float32;
  ReduceOp op_ = ReduceOp::sum;
  std::size_t depth_ = 0;
  bool tree_ = false;
  std::array<ReductionOrder::Level, ReductionOrder::max_levels> levels_{};
  std::vector<void*> outs_ = std::vector<void*>(static_cast<std::size_t>(ranks_));
  std::vector<const void*> pointers_;
  std::vector<std::byte> scratch_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
