// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Parts of strided blocks: found in place where they are one run, else packed into and unpacked from
/// one.

#include <shardwright/core/strided_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Elements [begin, end) of a block, counted in row-major order.
struct BlockPart {
  StridedBlock block{};
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t count() const noexcept { return end - begin; }
};

/// Part k of a block that is cut into parts of `part` elements; empty past its end.
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

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
