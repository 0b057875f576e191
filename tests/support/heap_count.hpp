// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counts each thread's heap allocations, and can make one fail: every test runner is linked with an
/// operator new that does this.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define SHARDWRIGHT_TEST_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define SHARDWRIGHT_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHARDWRIGHT_TEST_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define SHARDWRIGHT_TEST_THREAD_SANITIZER 1
#endif
#endif
// ThreadSanitizer keeps its own operator new. Ours works on top of AddressSanitizer's allocator, which also
// checks the state after a failed allocation.
#if defined(SHARDWRIGHT_TEST_THREAD_SANITIZER)
#define SHARDWRIGHT_TEST_REPLACES_NEW 0
#else
#define SHARDWRIGHT_TEST_REPLACES_NEW 1
#endif

namespace shardwright_test {

/// @brief Whether this program runs under a sanitizer, which allocates memory itself.
#if defined(SHARDWRIGHT_TEST_ADDRESS_SANITIZER) || defined(SHARDWRIGHT_TEST_THREAD_SANITIZER)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// @brief Whether allocations are counted and can fail.
inline constexpr bool counts_heap = SHARDWRIGHT_TEST_REPLACES_NEW != 0;

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

  /// @brief Returns whether that many allocations were made.
  [[nodiscard]] bool happened() const noexcept;

private:
  Of of_;
};

} // namespace shardwright_test
