// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes tensors into a safetensors file, or into several with an index.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/new_file.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief A tensor to write: its elements are contiguous and row-major in memory.
struct Source {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

/// @brief A tensor of C++ elements to write.
/// @param elements must stay alive until written
template <StoredElement Element>
[[nodiscard]] Source source(std::string name, std::vector<std::uint64_t> shape,
                            std::span<const Element> elements) {
  return {std::move(name), dtype_of<Element>(), std::move(shape), std::as_bytes(elements)};
}

namespace detail {

/// By descending element type, then by name: the reference implementation's order, which aligns every tensor.
inline void put_in_order(std::vector<Source>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const Source& a, const Source& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
}

[[nodiscard]] inline std::vector<Entry> entries_of(const std::vector<Source>& tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (const Source& tensor : tensors)
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  return entries;
}

inline void write_in_order(const std::filesystem::path& path, const std::vector<Source>& tensors,
                           const Metadata& metadata) {
  std::vector<Entry> entries = entries_of(tensors);
  const std::string text = header_text(entries, metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].bytes.size() != entries[i].bytes())
      throw InvalidArgument(
          "safetensors: tensor " + shardwright::detail::quoted_text(tensors[i].name) + " of " +
          std::string(name_of(tensors[i].dtype)) + " " + shape_text(tensors[i].shape) + " must come with " +
          std::to_string(entries[i].bytes()) + " bytes, but has " + std::to_string(tensors[i].bytes.size()));
  shardwright::detail::NewFile file(path);
  file.write(text);
  for (const Source& tensor : tensors)
    file.write({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  file.commit();
}

inline void remove_index(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::remove(path, code))
    code.assign(shardwright::detail::sync_directory(path.parent_path()), std::generic_category());
  if (code)
    shardwright::detail::reject_unwritable(path, code.value());
}

} // namespace detail

/// @brief Writes a file that holds these tensors, byte for byte as the reference implementation does. It
/// appears under its name once all of it is on disk; only then does it replace an existing file. A symbolic
/// link keeps pointing to its file; a device or a pipe is written in place.
/// @throws InvalidArgument if a name is used twice or bytes and shape disagree.
/// @throws DataError if the file cannot be written; the path then holds what it held before.
inline void write(const std::filesystem::path& path, std::vector<Source> tensors,
                  const Metadata& metadata = {}) {
  detail::put_in_order(tensors);
  detail::write_in_order(path, tensors, metadata);
}

/// @brief Writes tensors into files of `directory` of at most `most_bytes` of data each, or of one larger
/// tensor: `model.safetensors` if one file holds them, else `model-00001-of-00003.safetensors` and so on with
/// `model.safetensors.index.json`. Tensors keep their given order.
///
/// The index is written last, and that of an earlier export is removed before its files change, so an
/// interrupted export is never read as a mixture of the two. Other files of an earlier export stay.
/// @throws InvalidArgument and DataError as write() does, and InvalidArgument for more than 99999 files.
inline void write_sharded(const std::filesystem::path& directory, const std::vector<Source>& tensors,
                          std::uint64_t most_bytes, const Metadata& metadata = {{"format", "pt"}}) {
  std::vector<std::vector<Source>> files(1);
  std::uint64_t filled = 0;
  std::uint64_t total = 0;
  for (const Source& tensor : tensors) {
    if (!files.back().empty() && tensor.bytes.size() > most_bytes - std::min(filled, most_bytes)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(tensor);
    filled += tensor.bytes.size();
    total += tensor.bytes.size();
  }
  const std::filesystem::path index_path = directory / "model.safetensors.index.json";
  if (files.size() == 1) {
    write(directory / "model.safetensors", tensors, metadata);
    return detail::remove_index(index_path);
  }
  if (files.size() > 99'999)
    throw InvalidArgument("safetensors: tensors must fit 99999 files, but need " +
                          std::to_string(files.size()) + " (allow larger files)");
  // Duplicate names are found before anything is written, whichever files they are in.
  std::vector<Entry> entries = detail::entries_of(tensors);
  (void)header_text(entries, metadata);
  detail::remove_index(index_path);
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::json::object()}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    char name[80];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    for (const Source& tensor : files[i])
      index["weight_map"][tensor.name] = name;
    write(directory / name, std::move(files[i]), metadata);
  }
  shardwright::detail::NewFile file(index_path);
  file.write(index.dump(2) + "\n");
  file.commit();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
