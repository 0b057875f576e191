// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counts what each thread takes from the heap: every test runner is linked with an operator new that
/// does.

#include <cstddef>

// Sanitizers bring an operator new of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHARDWRIGHT_TEST_COUNTS_HEAP 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHARDWRIGHT_TEST_COUNTS_HEAP 0
#endif
#endif
#ifndef SHARDWRIGHT_TEST_COUNTS_HEAP
#define SHARDWRIGHT_TEST_COUNTS_HEAP 1
#endif

namespace shardwright_test {

/// @brief Whether anything is counted.
inline constexpr bool counts_heap = SHARDWRIGHT_TEST_COUNTS_HEAP != 0;

/// @brief Allocations of the calling thread so far.
[[nodiscard]] std::size_t heap_allocations() noexcept;

} // namespace shardwright_test
