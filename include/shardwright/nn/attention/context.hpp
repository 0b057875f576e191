// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The two forms of context parallelism, each a choice of layout and token order.

#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/token_order.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <LayoutType Qkv> struct HeadsForSequence {
  static constexpr LayoutValue value = [] {
    LayoutValue layout = Qkv::value;
    for (const int axis : Qkv::value.shard(1))
      layout.shard(2).push_back(axis);
    layout.shard(1) = {};
    return layout;
  }();
};

} // namespace detail

/// @brief The extents that context ranks must divide evenly.
struct ContextExtents {
  std::int64_t ranks = 1;
  std::int64_t sequence_divisor = 1; ///< The sequence length must be a multiple of it.
  std::int64_t head_ranks = 1; ///< Number of ranks over which each tensor-parallel rank's heads are split.
};

/// @brief Attention reads whole sequences for some of the heads: two all_to_alls in each pass redistribute
/// the fused input and the result (DeepSpeed-Ulysses, Jacobs et al., arXiv 2309.14509).
///
/// The number of key and value heads must be divisible by tp x cp.
struct AllToAllContext {
  using Order = NaturalOrder;
  /// @brief Layout that attention reads, from that of the fused input.
  template <LayoutType Qkv>
  using AttentionInput = detail::LayoutOf<typename Qkv::axis_list, detail::HeadsForSequence<Qkv>>;
  [[nodiscard]] static constexpr ContextExtents extents(int ranks) noexcept { return {ranks, ranks, ranks}; }
};

/// @brief Every rank keeps its queries, and keys and values travel around the ring of context ranks (Ring
/// Attention, Liu et al., arXiv 2310.01889), in zig-zag order to balance the work.
///
/// Any number of heads; the sequence length must be a multiple of 2 cp.
struct RingContext {
  using Order = ZigZagOrder;
  template <LayoutType Qkv> using AttentionInput = Qkv;
  [[nodiscard]] static constexpr ContextExtents extents(int ranks) noexcept {
    return {ranks, Order::divisor(ranks), 1};
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
