// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cost of a call on a link: steps and bytes of the ring algorithms.

#include <shardwright/comm/call.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A rank's link to the others; each direction has the full bandwidth.
struct LinkOptions {
  double latency_seconds = 0;  ///< Of one step.
  double bytes_per_second = 0; ///< In each direction; 0: no limit.
};

/// @brief The steps and bytes of a call on one rank's link.
struct LinkCost {
  int steps = 0;    ///< Sequential messages.
  double bytes = 0; ///< Over the link in one direction.

  [[nodiscard]] double seconds(const LinkOptions& link) const noexcept {
    return steps * link.latency_seconds + (link.bytes_per_second > 0 ? bytes / link.bytes_per_second : 0);
  }
};

namespace detail {

/// Elements in all blocks of one side of a call.
[[nodiscard]] inline std::size_t elements_of(std::span<const StridedBlock> blocks, std::size_t count,
                                             int ranks) noexcept {
  std::size_t elements = blocks.empty() ? count * static_cast<std::size_t>(ranks) : 0;
  for (const StridedBlock& block : blocks)
    elements += block.count();
  return elements;
}

} // namespace detail

/// @brief The cost of a call on one of `ranks` ranks; a group of one costs nothing.
///
/// For B bytes over N ranks, by the ring algorithms (Thakur, Rabenseifner, Gropp, 2005, section 4):
/// all_gather and reduce_scatter N-1 steps and (N-1)/N B; all_reduce twice that; broadcast N-1 steps and B,
/// pipelined; all_to_all N-1 steps and the elements sent to or received from others, whichever is more; a
/// message one step and B; a barrier the steps of a dissemination, ceil(log2 N). A split is free.
[[nodiscard]] inline LinkCost link_cost(const CollectiveCall& call, int rank, int ranks) noexcept {
  if (ranks == 1)
    return {};
  const auto bytes = [&call](std::size_t elements) {
    return static_cast<double>(elements) * static_cast<double>(size_of(call.element));
  };
  const auto others = [ranks](double whole) { return whole * (ranks - 1) / ranks; };
  switch (call.operation) {
  case Operation::split:
    return {};
  case Operation::barrier:
    return {static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))), 0};
  case Operation::send:
  case Operation::receive:
    return {1, bytes(call.count)};
  case Operation::broadcast:
    return {ranks - 1, bytes(call.count)};
  case Operation::all_reduce:
    return {2 * (ranks - 1), 2 * others(bytes(call.count))};
  case Operation::all_gather:
    return {ranks - 1, others(bytes(detail::elements_of(call.out_blocks, call.count, ranks)))};
  case Operation::reduce_scatter:
    return {ranks - 1, others(bytes(detail::elements_of(call.in_blocks, call.count, ranks)))};
  case Operation::all_to_all:
    break;
  }
  const std::size_t sent =
      detail::elements_of(call.in_blocks, call.count, ranks) - call.in_block(rank).count();
  const std::size_t received =
      detail::elements_of(call.out_blocks, call.count, ranks) - call.out_block(rank).count();
  return {ranks - 1, bytes(std::max(sent, received))};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
