// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Makes CUDA load all kernels at startup, as NCCL requires.

#include <shardwright/core/config.hpp>

#include <cstdlib>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A kernel that is loaded at its first launch may wait for everything on its GPU, including an NCCL kernel
/// that waits for a rank queued behind this launch (CUDA C++ Programming Guide, "Lazy Loading", on concurrent
/// execution). CUDA reads the variable at its first call, hence before main; an existing value is kept.
inline const bool kernels_load_eagerly = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
