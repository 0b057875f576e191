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

/// Copies one run; `stream` stores past the caches.
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

/// Copies one run to several places in one pass over it, past the caches.
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
    // Pieces that stay in the first-level cache between the copies.
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

/// Copies the elements of one block to another of equal count, in row-major order, whatever their rows.
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
  // A block of one run may be cut anywhere, so rows of the other side set the pace; else the shorter rest of
  // the two.
  std::size_t to_row = 0, to_column = 0, from_row = 0, from_column = 0;
  const std::size_t to_length = to_block.contiguous() ? count : to_block.row_length;
  const std::size_t from_length = from_block.contiguous() ? count : from_block.row_length;
  for (std::size_t done = 0; done < count;) {
    const std::size_t length = std::min(to_length - to_column, from_length - from_column);
    copy_run(to + (to_block.offset + to_row * to_block.row_stride + to_column) * element_bytes,
             from + (from_block.offset + from_row * from_block.row_stride + from_column) * element_bytes,
             length * element_bytes, stream);
    done += length;
    to_column += length;
    from_column += length;
    if (to_column == to_length) {
      to_column = 0;
      ++to_row;
    }
    if (from_column == from_length) {
      from_column = 0;
      ++from_row;
    }
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
