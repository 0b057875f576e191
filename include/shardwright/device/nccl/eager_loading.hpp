// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Has CUDA load all kernels when it starts, which NCCL needs.

#include <shardwright/core/config.hpp>

#include <cstdlib>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A kernel that is loaded at its first launch may wait for everything on its GPU, so for a kernel of NCCL
/// that waits for a rank behind this one (CUDA C++ Programming Guide, "Lazy Loading", on concurrent
/// execution). CUDA reads the variable at its first call, hence before main; one that is set already stays.
inline const bool kernels_load_eagerly = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
