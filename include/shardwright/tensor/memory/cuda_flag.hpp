// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A number that a kernel on an NVIDIA GPU publishes to the host.

#include <shardwright/core/config.hpp>

#include <cuda/atomic>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Stores a number in memory that the host reads; a host thread that reads it with acquire order also sees
/// everything that this thread wrote before.
__device__ inline void publish_to_host(std::uint64_t* flag, std::uint64_t number) {
  cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*flag).store(number, cuda::memory_order_release);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
