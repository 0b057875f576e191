// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Vectors that are created and destroyed in every step and reuse the memory of earlier ones.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Memory of destroyed vectors, kept for new ones: in steady state, nothing is allocated on the heap. For one
/// thread at a time; it lives as long as any vector that uses it.
using KeptMemory = std::shared_ptr<std::pmr::memory_resource>;

[[nodiscard]] inline KeptMemory make_kept_memory() {
  return std::make_shared<std::pmr::unsynchronized_pool_resource>();
}

template <class Type>
class KeptAllocator {
public:
  using value_type = Type;
  KeptAllocator(KeptMemory memory) noexcept // NOLINT(google-explicit-constructor): a vector's argument
      : memory_(std::move(memory)) {}
  template <class Other>
  KeptAllocator(const KeptAllocator<Other>& other) noexcept // NOLINT(google-explicit-constructor): as above
      : memory_(other.memory()) {}

  [[nodiscard]] Type* allocate(std::size_t count) {
    return static_cast<Type*>(memory_->allocate(count * sizeof(Type), alignof(Type)));
  }
  void deallocate(Type* at, std::size_t count) noexcept {
    memory_->deallocate(at, count * sizeof(Type), alignof(Type));
  }
  [[nodiscard]] const KeptMemory& memory() const noexcept { return memory_; }

  template <class Other>
  friend bool operator==(const KeptAllocator& left, const KeptAllocator<Other>& right) noexcept {
    return left.memory() == right.memory();
  }

private:
  KeptMemory memory_;
};

template <class Type>
using KeptVector = std::vector<Type, KeptAllocator<Type>>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
