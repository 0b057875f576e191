// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Vectors that are created and destroyed in every step and reuse the memory of earlier ones.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Blocks of destroyed vectors, kept for new ones: in steady state, nothing is allocated on the heap. For one
/// thread at a time. All blocks must have been returned before it is destroyed.
///
/// Sizes are powers of two. std::pmr has such a pool too, but its header takes 50 ms to compile.
class KeptBlocks {
public:
  KeptBlocks() = default;
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;
  ~KeptBlocks() {
    for (Block* first : kept_)
      while (first != nullptr)
        ::operator delete(std::exchange(first, first->next));
  }

  /// Memory for any type of fundamental alignment.
  [[nodiscard]] void* take(std::size_t bytes) {
    const std::size_t power = power_for(bytes);
    if (Block*& first = kept_[power]; first != nullptr)
      return std::exchange(first, first->next);
    return ::operator new (std::size_t{1} << power);
  }
  void give_back(void* memory, std::size_t bytes) noexcept {
    Block*& first = kept_[power_for(bytes)];
    first = new (memory) Block{first};
  }

private:
  struct Block {
    Block* next;
  };

  [[nodiscard]] static std::size_t power_for(std::size_t bytes) noexcept {
    return static_cast<std::size_t>(std::bit_width(std::max(bytes, sizeof(Block)) - 1));
  }

  std::array<Block*, 64> kept_{}; ///< Lists of the blocks of each size.
};

/// Lives as long as any vector that uses it.
using KeptMemory = std::shared_ptr<KeptBlocks>;

[[nodiscard]] inline KeptMemory make_kept_memory() { return std::make_shared<KeptBlocks>(); }

template <class Type> class KeptAllocator {
public:
  using value_type = Type;
  KeptAllocator(KeptMemory memory) noexcept // NOLINT(google-explicit-constructor): a vector's argument
      : memory_(std::move(memory)) {}
  template <class Other>
  KeptAllocator(const KeptAllocator<Other>& other) noexcept // NOLINT(google-explicit-constructor): as above
      : memory_(other.memory()) {}

  [[nodiscard]] Type* allocate(std::size_t count) {
    static_assert(alignof(Type) <= alignof(std::max_align_t));
    return static_cast<Type*>(memory_->take(count * sizeof(Type)));
  }
  void deallocate(Type* at, std::size_t count) noexcept { memory_->give_back(at, count * sizeof(Type)); }
  [[nodiscard]] const KeptMemory& memory() const noexcept { return memory_; }

  template <class Other>
  friend bool operator==(const KeptAllocator& left, const KeptAllocator<Other>& right) noexcept {
    return left.memory() == right.memory();
  }

private:
  KeptMemory memory_;
};

template <class Type> using KeptVector = std::vector<Type, KeptAllocator<Type>>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
