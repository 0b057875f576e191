// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Parts of strided blocks, packed unless they are contiguous, and the memory for packing.

#include <shardwright/comm/reduce.hpp>
#include <shardwright/core/strided_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
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

/// Calls run(pointer, packed offset, bytes) for every contiguous run of a part.
template <class Byte, class Run>
void for_each_run(Byte* base, const BlockPart& part, std::size_t element_bytes, Run run) {
  const StridedBlock& block = part.block;
  if (part.count() == 0)
    return;
  if (block.contiguous()) {
    run(base + (block.offset + part.begin) * element_bytes, std::size_t{0}, part.count() * element_bytes);
    return;
  }
  std::size_t row = part.begin / block.row_length;
  std::size_t column = part.begin % block.row_length;
  for (std::size_t done = part.begin; done < part.end; ++row, column = 0) {
    const std::size_t length = std::min(block.row_length - column, part.end - done);
    run(base + (block.offset + row * block.row_stride + column) * element_bytes,
        (done - part.begin) * element_bytes, length * element_bytes);
    done += length;
  }
}

inline void pack(const std::byte* from, const BlockPart& part, std::size_t element_bytes, std::byte* to) {
  for_each_run(from, part, element_bytes, [to](const std::byte* run, std::size_t at, std::size_t bytes) {
    std::memcpy(to + at, run, bytes);
  });
}

inline void unpack(const std::byte* from, const BlockPart& part, std::size_t element_bytes, std::byte* to) {
  for_each_run(to, part, element_bytes, [from](std::byte* run, std::size_t at, std::size_t bytes) {
    std::memcpy(run, from + at, bytes);
  });
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
