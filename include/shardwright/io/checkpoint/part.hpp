// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One file of a checkpoint: the blocks of one writer.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/block.hpp>
#include <shardwright/io/checkpoint/block_hash.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/large_file.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

/// Large blocks of whole pages first, so that they are written from where they are, and of the others those
/// with larger elements: every block is aligned.
[[nodiscard]] inline std::vector<const Block*> in_order_of_file(const std::vector<Block>& blocks) {
  using shardwright::detail::LargeFile;
  std::vector<const Block*> order;
  for (const Block& block : blocks)
    order.push_back(&block);
  const auto in_pages = [](const Block* block) {
    return block->bytes.size() >= LargeFile::least_in_place && block->bytes.size() % LargeFile::page == 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](const Block* a, const Block* b) {
    return std::pair(in_pages(a), a->dtype) > std::pair(in_pages(b), b->dtype);
  });
  return order;
}

/// Writes the bytes of a block and returns their hash: what is copied is hashed while it is in the cache.
[[nodiscard]] inline auto write_block(shardwright::detail::LargeFile& file, std::span<const std::byte> left,
                                      std::atomic<std::uint64_t>* written) {
  constexpr std::size_t hash_at_a_time = std::size_t{1} << 17;
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  RunningHash hash;
  while (!left.empty()) {
    const bool copies = !file.takes_in_place(text(left));
    const auto some = left.first(
        std::min(left.size(), copies ? hash_at_a_time : std::size_t{shardwright::detail::LargeFile::chunk}));
    hash.add(some);
    file.write(text(some));
    left = left.subspan(some.size());
    if (written != nullptr)
      written->fetch_add(some.size(), std::memory_order_relaxed);
  }
  return hash.hash();
}

} // namespace detail

/// @brief Writes one part of a checkpoint: a safetensors file of blocks, which is on disk when this returns.
/// @returns the manifest's entries for the part and for its blocks, by tensor
/// @throws InvalidArgument if a block appears twice, or its bytes and extent disagree.
/// @throws DataError if the file cannot be written.
/// @param unfinished directory of the checkpoint, as UnfinishedSave::path()
/// @param written grows by the bytes of blocks as they go to the file, for another thread to read
[[nodiscard]] inline Manifest write_part(const std::filesystem::path& unfinished, std::uint64_t number,
                                         const std::vector<Block>& blocks,
                                         std::atomic<std::uint64_t>* written = nullptr) {
  using shardwright::detail::LargeFile;
  const std::string name = "part-" + std::to_string(number) + ".safetensors";
  const std::vector<const Block*> order = detail::in_order_of_file(blocks);
  Manifest out;
  std::vector<safetensors::Entry> entries;
  for (const Block* const block : order) {
    // Braces: nvcc does not initialise an aggregate in parentheses.
    const auto [at, is_new] =
        out.tensors.try_emplace(block->tensor, SavedTensor{block->dtype, block->shape, block->layout, {}});
    if (!is_new && (at->second.dtype != block->dtype || at->second.shape != block->shape))
      throw InvalidArgument("checkpoint: blocks of tensor " +
                            shardwright::detail::quoted_text(block->tensor) +
                            " must agree on its shape and element type");
    if (!block->bytes.empty())
      entries.push_back({block_name(block->tensor, block->shape, block->offset, block->extent), block->dtype,
                         block->extent});
  }
  const std::string header = safetensors::header_text(entries, {}, LargeFile::page);
  std::uint64_t bytes = header.size();
  LargeFile file(unfinished / name);
  file.write(header);
  std::size_t i = 0;
  for (const Block* const block : order) {
    if (block->bytes.empty())
      continue;
    if (block->bytes.size() != entries[i++].bytes())
      throw InvalidArgument(
          "checkpoint: a block of tensor " + shardwright::detail::quoted_text(block->tensor) +
          " must come with the bytes of its extent, but has " + std::to_string(block->bytes.size()));
    out.tensors[block->tensor].blocks.push_back({block->offset, block->extent, name, block->bytes.size(),
                                                 detail::write_block(file, block->bytes, written)});
    bytes += block->bytes.size();
  }
  file.commit();
  out.parts[name] = {bytes, hash_of(header)};
  return out;
}

/// @brief Adds the contents of another part.
/// @throws InvalidArgument if both have a part of one name, or disagree on the shape or element type of a
/// tensor.
inline void join(Manifest& into, const Manifest& part) {
  for (const auto& [name, file] : part.parts)
    if (!into.parts.emplace(name, file).second)
      throw InvalidArgument("checkpoint: each writer must have a separate part, but " + name +
                            " appears twice (number them)");
  for (const auto& [name, tensor] : part.tensors) {
    const auto [at, is_new] = into.tensors.emplace(name, tensor);
    if (is_new)
      continue;
    SavedTensor& known = at->second;
    if (known.dtype != tensor.dtype || known.shape != tensor.shape)
      throw InvalidArgument("checkpoint: blocks of tensor " + shardwright::detail::quoted_text(name) +
                            " must agree on its shape and element type (save the same model on every rank)");
    known.blocks.insert(known.blocks.end(), tensor.blocks.begin(), tensor.blocks.end());
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
