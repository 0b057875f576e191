// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks that blocks cover a tensor exactly once, before anything is read.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

[[nodiscard]] inline std::string block_text(const SavedBlock& block) {
  return safetensors::detail::shape_text(block.extent) + " at " +
         safetensors::detail::shape_text(block.offset);
}

[[nodiscard]] inline bool overlap(const SavedBlock& a, const SavedBlock& b) noexcept {
  for (std::size_t d = 0; d < a.offset.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.extent[d] || b.offset[d] >= a.offset[d] + a.extent[d])
      return false;
  return true;
}

} // namespace detail

/// @brief The fault of a tensor's blocks, as a sentence without a subject; empty if each element of the
/// tensor is in exactly one block and no block is empty.
///
/// Blocks that overlap in the first dimension are compared in pairs; other pairs cannot overlap.
[[nodiscard]] inline std::string cover_fault(const SavedTensor& tensor) {
  const std::vector<std::uint64_t>& shape = tensor.shape;
  // The elements of the tensor fit 64 bits, and so do those of blocks inside it.
  const std::optional<std::uint64_t> total = safetensors::bytes_of(safetensors::Dtype::u8, shape);
  if (!total || !safetensors::bytes_of(tensor.dtype, shape))
    return "its shape " + safetensors::detail::shape_text(shape) +
           " must fill whole bytes, whose number must fit in 64 bits";
  std::uint64_t covered = 0;
  std::vector<const SavedBlock*> blocks;
  for (const SavedBlock& block : tensor.blocks) {
    bool inside = block.offset.size() == shape.size() && block.extent.size() == shape.size();
    for (std::size_t d = 0; inside && d < shape.size(); ++d)
      inside =
          block.extent[d] > 0 && block.offset[d] < shape[d] && block.extent[d] <= shape[d] - block.offset[d];
    if (!inside)
      return "its block " + detail::block_text(block) + " must lie inside " +
             safetensors::detail::shape_text(shape);
    if (safetensors::bytes_of(tensor.dtype, block.extent) != block.bytes)
      return "its block " + detail::block_text(block) + " must have the bytes of its elements, but has " +
             std::to_string(block.bytes);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : block.extent)
      elements *= extent;
    if (elements > *total - covered)
      return "its blocks must cover each element once, but have more elements than " +
             safetensors::detail::shape_text(shape);
    covered += elements;
    blocks.push_back(&block);
  }
  if (covered != *total)
    return "its blocks must cover all of " + safetensors::detail::shape_text(shape) + ", but " +
           std::to_string(*total - covered) + " elements are in none";
  const auto first = [](const SavedBlock* b) { return b->offset.empty() ? 0 : b->offset.front(); };
  const auto end = [&](const SavedBlock* b) {
    return first(b) + (b->extent.empty() ? 1 : b->extent.front());
  };
  std::sort(blocks.begin(), blocks.end(), [&](const auto* a, const auto* b) { return first(a) < first(b); });
  std::vector<const SavedBlock*> open;
  for (const SavedBlock* const block : blocks) {
    std::erase_if(open, [&](const SavedBlock* other) { return end(other) <= first(block); });
    for (const SavedBlock* const other : open)
      if (detail::overlap(*block, *other))
        return "its blocks must cover each element once, but " + detail::block_text(*other) + " and " +
               detail::block_text(*block) + " overlap";
    open.push_back(block);
  }
  return {};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
