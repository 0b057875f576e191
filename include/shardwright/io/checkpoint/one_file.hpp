// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes tensors of a checkpoint, unsharded, into one safetensors file.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/large_file.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief All elements of a tensor, row-major.
/// @throws DataError if it is absent or cannot be read.
[[nodiscard]] inline std::vector<std::byte> read_whole(const Reader& reader, const std::string& name) {
  const SavedTensor& tensor = reader.tensor(name);
  std::uint64_t bytes = 0;
  for (const SavedBlock& block : tensor.blocks)
    bytes += block.bytes;
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  reader.read(name, {std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}, out);
  return out;
}

/// @brief Assembles tensors from their blocks and writes them into one file, which appears once all of it is
/// on disk. Needs memory for the largest tensor only.
/// @param names of the tensors; the file orders them by element type, then by name
/// @throws DataError if a tensor is absent, cannot be read, or the file cannot be written.
inline void write_one_file(const Reader& reader, const std::filesystem::path& path,
                           const std::vector<std::string>& names) {
  std::vector<safetensors::Entry> entries;
  for (const std::string& name : names)
    entries.push_back({name, reader.tensor(name).dtype, reader.tensor(name).shape});
  // The reference implementation's order, which aligns every tensor.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  const std::string header = safetensors::header_text(entries, {{"format", "pt"}});
  shardwright::detail::LargeFile file(path);
  file.write(header);
  for (const safetensors::Entry& entry : entries) {
    const std::vector<std::byte> bytes = read_whole(reader, entry.name);
    file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  file.commit();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
