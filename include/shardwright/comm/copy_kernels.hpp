// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies runs and strided blocks between the buffers of two ranks.

#include <shardwright/core/strided_block.hpp>
#include <shardwright/core/vector_lanes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Copies one contiguous run; `stream` uses non-temporal stores.
inline void copy_run(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) noexcept {
  if (bytes == 0)
    return;
  const std::size_t head = (line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes;
  if (!stream || bytes < head + line_bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  using Lanes = LanesOf<std::uint8_t>;
  constexpr std::size_t step = 4 * lane_bytes;
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + step <= bytes; i += step) {
    const auto* source = reinterpret_cast<const std::uint8_t*>(from + i);
    auto* target = reinterpret_cast<std::uint8_t*>(to + i);
    const auto a = Lanes::load(source);
    const auto b = Lanes::load(source + lane_bytes);
    const auto c = Lanes::load(source + 2 * lane_bytes);
    const auto d = Lanes::load(source + 3 * lane_bytes);
    Lanes::stream(target, a);
    Lanes::stream(target + lane_bytes, b);
    Lanes::stream(target + 2 * lane_bytes, c);
    Lanes::stream(target + 3 * lane_bytes, d);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

/// Copies one contiguous run to several destinations in one pass, with non-temporal stores.
inline void copy_to_all(void* const* outs, int out_count, const std::byte* from, std::size_t bytes) noexcept {
  using Lanes = LanesOf<std::uint8_t>;
  constexpr std::size_t piece = 4096;
  bool aligned = out_count > 0;
  for (int j = 0; j < out_count; ++j)
    aligned =
        aligned && (reinterpret_cast<std::uintptr_t>(outs[j]) - reinterpret_cast<std::uintptr_t>(outs[0])) %
                           line_bytes ==
                       0;
  if (!aligned || bytes < 2 * line_bytes) {
    // Pieces that stay in the L1 cache between the copies.
    for (std::size_t at = 0; at < bytes; at += piece)
      for (int j = 0; j < out_count; ++j)
        copy_run(static_cast<std::byte*>(outs[j]) + at, from + at, std::min(piece, bytes - at), true);
    return;
  }
  const std::size_t head = (line_bytes - reinterpret_cast<std::uintptr_t>(outs[0]) % line_bytes) % line_bytes;
  const std::size_t body = (bytes - head) / line_bytes * line_bytes;
  for (std::size_t at = head; at < head + body; at += lane_bytes) {
    const auto value = Lanes::load(reinterpret_cast<const std::uint8_t*>(from + at));
    for (int j = 0; j < out_count; ++j)
      Lanes::stream(static_cast<std::uint8_t*>(outs[j]) + at, value);
  }
  for (int j = 0; j < out_count; ++j) {
    std::memcpy(static_cast<std::byte*>(outs[j]), from, head);
    std::memcpy(static_cast<std::byte*>(outs[j]) + head + body, from + head + body, bytes - head - body);
  }
}

/// A position inside a strided block, in row-major order. A contiguous block may be cut anywhere, so the rows
/// of the other block determine the pieces.
class StridedCursor {
public:
  StridedCursor() = default;
  explicit StridedCursor(const StridedBlock& block) noexcept
      : row_(block.offset), length_(block.contiguous() ? block.count() : block.row_length),
        stride_(block.row_stride) {}
  /// Begins at element `begin`, which the block must have.
  StridedCursor(const StridedBlock& block, std::size_t begin) noexcept : StridedCursor(block) {
    row_ += begin / length_ * stride_;
    column_ = begin % length_;
  }
  /// Elements up to the end of the row.
  [[nodiscard]] std::size_t left() const noexcept { return length_ - column_; }
  [[nodiscard]] std::size_t position() const noexcept { return row_ + column_; }
  /// By at most the remaining elements.
  void advance(std::size_t length) noexcept {
    column_ += length;
    if (column_ < length_)
      return;
    column_ = 0;
    row_ += stride_;
  }

private:
  std::size_t row_ = 0;
  std::size_t length_ = 0;
  std::size_t stride_ = 0;
  std::size_t column_ = 0;
};

/// Copies elements from one position to another, run by run.
inline void copy_elements(std::byte* to, StridedCursor target, const std::byte* from, StridedCursor source,
                          std::size_t count, std::size_t element_bytes, bool stream) noexcept {
  for (std::size_t done = 0; done < count;) {
    const std::size_t length = std::min({target.left(), source.left(), count - done});
    copy_run(to + target.position() * element_bytes, from + source.position() * element_bytes,
             length * element_bytes, stream);
    target.advance(length);
    source.advance(length);
    done += length;
  }
}

/// Copies the elements of one block to another of equal count, in row-major order, whatever their strides.
inline void copy_block(std::byte* to, const StridedBlock& to_block, const std::byte* from,
                       const StridedBlock& from_block, std::size_t element_bytes, bool stream) noexcept {
  const std::size_t count = to_block.count();
  if (count == 0)
    return;
  if (to_block.contiguous() && from_block.contiguous()) {
    copy_run(to + to_block.offset * element_bytes, from + from_block.offset * element_bytes,
             count * element_bytes, stream);
    return;
  }
  copy_elements(to, StridedCursor(to_block), from, StridedCursor(from_block), count, element_bytes, stream);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
