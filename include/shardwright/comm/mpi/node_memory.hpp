// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The layout of the shared memory of a node's ranks, which is initially zero.

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/mpi/cause.hpp>
#include <shardwright/comm/mpi/last_call.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The state of a rank of the world, as far as this node knows.
enum class RankState : std::uint32_t { unknown, running, finished, failed, dead };

/// What concerns all ranks of a node.
struct alignas(128) NodeHeader {
  std::atomic<std::int32_t> first_failure;
  std::atomic<std::uint32_t> group_failures;
  std::atomic<bool> told;
  std::atomic<bool> flights_written;
  std::atomic<std::int32_t> opened; ///< Number of ranks that have opened it.
  std::atomic<std::uint64_t> noticed;
  std::atomic<std::int32_t> readers; ///< Number of ranks that can read the memory of all others.
  std::atomic<bool> has_exchange;
};

/// What a rank of the world shows to the others of the node.
struct alignas(128) NodeSlot {
  static constexpr std::size_t words_per_record = sizeof(MpiLastCall) / 8;

  std::atomic<std::uint32_t> version;
  std::atomic<RankState> state;
  std::atomic<std::int32_t> pid;
  std::atomic<bool> at_end;
  std::atomic<std::chrono::steady_clock::rep> beat;
  std::atomic<std::int32_t> core_and_one; ///< Of the last beat; 0 if it is unknown.
  std::atomic<std::uint64_t> pid_namespace;
  std::atomic<std::uint64_t> address_of_rank; ///< In its process, to try to read.
  std::array<std::atomic<std::uint64_t>, UsableCores::words> cores;
  std::array<std::atomic<std::uint64_t>, words_per_record> record;
  MpiCause world_failure;
  MpiCause group_failure;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free);

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
