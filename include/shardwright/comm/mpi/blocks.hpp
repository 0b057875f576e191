// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Parts of strided blocks, packed unless they are contiguous, and the memory for packing.

#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/comm/reduce.hpp>
#include <shardwright/core/strided_block.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Elements [begin, end) of a block, counted in row-major order.
struct BlockPart {
  StridedBlock block{};
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t count() const noexcept { return end - begin; }
};

/// Part k of a block that is cut into parts of `part` elements; empty beyond its end.
inline BlockPart part_of(const StridedBlock& block, std::size_t k, std::size_t part) noexcept {
  const std::size_t count = block.count();
  return {block, std::min(count, k * part), std::min(count, (k + 1) * part)};
}

inline void pack(const std::byte* from, const BlockPart& part, std::size_t element_bytes, std::byte* to) {
  if (part.count() != 0)
    copy_elements(to, StridedCursor(contiguous_block(0, part.count())), from,
                  StridedCursor(part.block, part.begin), part.count(), element_bytes, false);
}
inline void unpack(const std::byte* from, const BlockPart& part, std::size_t element_bytes, std::byte* to) {
  if (part.count() != 0)
    copy_elements(to, StridedCursor(part.block, part.begin), from,
                  StridedCursor(contiguous_block(0, part.count())), part.count(), element_bytes, false);
}

/// Memory that grows to the largest size needed. A transfer has two steps in flight, and for each a slot to
/// receive from every rank and, if it packs, one to pack for every rank.
class MpiScratch {
public:
  explicit MpiScratch(int ranks) : reduction(ranks), ranks_(static_cast<std::size_t>(ranks)) {}

  NestedReduction reduction;

  /// Gives each slot this many bytes; their contents are lost.
  void reserve(std::size_t slot_bytes, bool receives, bool packs) {
    slot_bytes_ = (slot_bytes + line - 1) / line * line;
    slots_per_step_ = packs ? 2 * ranks_ : ranks_;
    const std::size_t bytes = receives || packs ? 2 * slots_per_step_ * slot_bytes_ : 0;
    if (bytes <= bytes_)
      return;
    memory_.reset(new std::byte[bytes]);
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* received(std::size_t step, int from) const noexcept {
    return memory_.get() + (step % 2 * slots_per_step_ + static_cast<std::size_t>(from)) * slot_bytes_;
  }
  [[nodiscard]] std::byte* packed(std::size_t step, int to) const noexcept {
    return received(step, to) + ranks_ * slot_bytes_;
  }

private:
  static constexpr std::size_t line = 64;

  std::size_t ranks_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::size_t slots_per_step_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
