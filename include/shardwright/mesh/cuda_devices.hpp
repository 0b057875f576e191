// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The GPUs of the process, and the one that a thread has chosen.

#include <shardwright/core/config.hpp>
#include <shardwright/mesh/kernel_notes.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Number of GPUs that the process sees.
[[nodiscard]] inline int cuda_device_count() {
  static const int count = [] {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess ? std::min(devices, KernelNotes::most_devices) : 0;
  }();
  return count;
}

/// The calling thread's; -1 for that of Kokkos.
[[nodiscard]] inline int& chosen_cuda_device() noexcept {
  thread_local int device = -1;
  return device;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
