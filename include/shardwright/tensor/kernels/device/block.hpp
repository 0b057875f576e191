// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Block kernels: warps that share memory and synchronise with one another.
///
/// A functor of blocks has `static constexpr unsigned warps`, `static constexpr unsigned blocks_at_once` (of
/// one multiprocessor, for which the compiler keeps registers free), and a template call operator over the
/// block. The same source runs on the host with a block whose warps are threads, so that it can be tested
/// there.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// A block as a functor sees it: index() of the block, warp() in it, shared() memory of all its warps, and
/// barrier(), which all warps reach before any continues, and after which earlier writes are visible.
///
/// Copies to shared memory are asynchronous: copy<4 or 16>(to, from, inside) of that many bytes, which writes
/// zeros if not `inside`; end_copies() closes a group of them; wait_for_copies<n>() returns when all groups
/// of this thread but the last n have arrived. Other threads see them after a barrier.
template <class Type>
concept KernelBlock = requires(const Type& block) {
  block.index();
  block.warp();
  block.shared();
  block.barrier();
  block.end_copies();
};

/// This thread's number in its block; on the host a warp is one thread.
template <class Block> SHARDWRIGHT_FUNCTION inline std::size_t block_thread(const Block& block) {
  return block.warp() * lane_threads + lane_number();
}

/// The single warp of a launch without blocks.
struct LoneWarp {
  SHARDWRIGHT_FUNCTION std::size_t index() const { return 0; }
  SHARDWRIGHT_FUNCTION unsigned warp() const { return 0; }
  SHARDWRIGHT_FUNCTION unsigned char* shared() const { return nullptr; }
  SHARDWRIGHT_FUNCTION void barrier() const {}
  SHARDWRIGHT_FUNCTION void end_copies() const {}
};

/// The sum of all threads' numbers, always in the same order, for the first thread; `shared` has room for one
/// number per warp. Headers of targets may have their own.
template <unsigned warps, class Number, class Block>
SHARDWRIGHT_FUNCTION inline Number sum_over_block(const Block& block, Number own, Number* shared) {
  Number sum = over_threads(own, PlusLanes{});
  if constexpr (warps > 1) {
    if (first_lane())
      shared[block.warp()] = sum;
    block.barrier();
    sum = Number(0);
    for (unsigned w = 0; w < warps; ++w)
      sum += shared[w];
  }
  return sum;
}

/// Shared memory that a kernel may use on every device.
inline constexpr std::size_t shared_bytes_everywhere = std::size_t{48} << 10;

/// Starts kernels of blocks; specialized by headers of targets, which have
/// `run(execution, blocks, shared_bytes, functor)` and `most_shared_bytes(execution)`.
template <class Execution> struct BlockLauncher { static constexpr bool available = false; };

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
