// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The host BLAS: its C interface, and one BLAS thread per rank.

#include <shardwright/core/blas_threads.hpp>
#include <shardwright/core/config.hpp>

#include <cstddef>

#if !defined(SHARDWRIGHT_WITH_BLAS)
#define SHARDWRIGHT_WITH_BLAS 0
#endif

#if SHARDWRIGHT_WITH_BLAS && !defined(SHARDWRIGHT_COMPILED)
// OpenBLAS has a type of this name in the global namespace, which would clash with `using namespace
// shardwright`.
#define bfloat16 blas_bfloat16
#include <cblas.h>
#undef bfloat16
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// True if this build multiplies host matrices with a BLAS.
inline constexpr bool has_blas = SHARDWRIGHT_WITH_BLAS != 0;

} // namespace detail

/// @brief Makes the BLAS use one thread per calling rank for the rest of the program; the parallelism comes
/// from the ranks. launch() does so itself while thread ranks run (LaunchOptions::blas_threads); this is for
/// programs that call the kernels without it, and for one rank.
///
/// Supports OpenBLAS, MKL and BLIS; returns false for any other BLAS, whose environment variable must then be
/// set to 1.
inline bool use_single_threaded_blas() {
  if (const auto* const blas = shardwright::detail::linked_blas(); detail::has_blas && blas != nullptr) {
    blas->set(1);
    return true;
  }
  return !detail::has_blas;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
