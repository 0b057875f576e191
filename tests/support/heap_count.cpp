// SPDX-License-Identifier: Apache-2.0
#include "support/heap_count.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t allocations = 0;
thread_local std::size_t left_of_thread = 0; // until one fails; zero for never
std::atomic<std::size_t> left_of_all{0};
std::atomic<std::ptrdiff_t> blocks{0};

[[nodiscard]] bool last_of_all() noexcept {
  std::size_t left = left_of_all.load(std::memory_order_relaxed);
  while (left != 0 && !left_of_all.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left == 1;
}

[[maybe_unused]] void* take(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if ((left_of_thread != 0 && --left_of_thread == 0) || last_of_all())
    throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded)) {
    blocks.fetch_add(1, std::memory_order_relaxed);
    return memory;
  }
  throw std::bad_alloc();
}

[[maybe_unused]] void give_back(void* memory) noexcept {
  if (memory != nullptr)
    blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

} // namespace

namespace shardwright_test {

std::size_t heap_allocations() noexcept { return allocations; }
std::ptrdiff_t heap_blocks() noexcept { return blocks.load(); }

HeapFault::HeapFault(std::size_t which, Of of) noexcept : of_(of) {
  if (of == Of::this_thread)
    left_of_thread = which;
  else
    left_of_all = which;
}
HeapFault::~HeapFault() {
  if (of_ == Of::this_thread)
    left_of_thread = 0;
  else
    left_of_all = 0;
}
bool HeapFault::happened() const noexcept {
  return of_ == Of::this_thread ? left_of_thread == 0 : left_of_all == 0;
}

} // namespace shardwright_test

// Not inline: compilers would see free() meet memory of operator new, and warn.
#if SHARDWRIGHT_TEST_REPLACES_NEW
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
// By default these call the ones above; those of a sanitizer would not.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new[](bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}
#endif
