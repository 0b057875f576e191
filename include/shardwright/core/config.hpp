// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Version, the versioned inline namespace, and the host-and-device function mark.

#define SHARDWRIGHT_VERSION_MAJOR 0
#define SHARDWRIGHT_VERSION_MINOR 1
#define SHARDWRIGHT_VERSION_PATCH 0

/// Inline namespace of the version, the target and the checks, so that copies in two shared libraries cannot
/// be mixed up.
#if defined(SHARDWRIGHT_WITH_CUDA) && defined(SHARDWRIGHT_CHECKED)
#define SHARDWRIGHT_ABI v0_1_cuda_checked
#elif defined(SHARDWRIGHT_WITH_CUDA)
#define SHARDWRIGHT_ABI v0_1_cuda
#elif defined(SHARDWRIGHT_CHECKED)
#define SHARDWRIGHT_ABI v0_1_host_checked
#else
#define SHARDWRIGHT_ABI v0_1_host
#endif

/// Marks a function that kernels call: host and device code under nvcc, a plain function elsewhere.
#if defined(__CUDACC__)
#define SHARDWRIGHT_FUNCTION __host__ __device__
#else
#define SHARDWRIGHT_FUNCTION
#endif

/// Marks definitions that shardwright::compiled holds once: `inline`, but emitted by its sources in any case.
#if defined(SHARDWRIGHT_COMPILING)
#define SHARDWRIGHT_INLINE inline __attribute__((used))
#else
#define SHARDWRIGHT_INLINE inline
#endif

/// @brief The library; everything public lives here.
namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief True in a program built with SHARDWRIGHT_CHECKED: new tensors are filled with NaN, and in every
/// step ranks compare the inputs of their tapes.
inline constexpr bool always_checked =
#if defined(SHARDWRIGHT_CHECKED)
    true;
#else
    false;
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
