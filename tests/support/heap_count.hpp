// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counts what each thread takes from the heap, and lets it fail: every test runner is linked with an
/// operator new that does.

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

/// @brief Blocks that all threads hold now.
[[nodiscard]] std::ptrdiff_t heap_blocks() noexcept;

/// @brief While it lives, one allocation throws std::bad_alloc: number `which`, from 1, of those that the
/// calling thread makes from now on, or all threads do.
class HeapFault {
public:
  enum class Of { this_thread, any_thread };
  HeapFault(std::size_t which, Of of) noexcept;
  ~HeapFault();
  HeapFault(const HeapFault&) = delete;
  HeapFault& operator=(const HeapFault&) = delete;

  /// @brief Returns whether there were so many allocations.
  [[nodiscard]] bool happened() const noexcept;

private:
  Of of_;
};

} // namespace shardwright_test
