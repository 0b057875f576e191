// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Definitions of Reader: part of its header, or compiled once in shardwright::compiled.

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/manifest_text.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/checkpoint/real_elements.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/io/safetensors/block_runs.hpp>
#include <shardwright/io/safetensors/file.hpp>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

SHARDWRIGHT_INLINE Reader::Reader(std::filesystem::path path) : path_(std::move(path)) {
  const std::filesystem::path file = path_ / "manifest.json";
  check_regular(file);
  manifest_ = parse_manifest(read_text(file, most_manifest_bytes), file.string());
  const auto step = detail::step_of(path_.filename().string());
  if (step && *step != manifest_.description.step)
    detail::refuse(path_.string(),
                   "a checkpoint must be of the step that its directory names, but is of step " +
                       std::to_string(manifest_.description.step));
  for (const auto& [name, part] : manifest_.parts)
    open_part(name, part);
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const SavedBlock& block : tensor.blocks)
      check_place(name, tensor, block);
}

SHARDWRIGHT_INLINE const SavedTensor& Reader::tensor(const std::string& name) const {
  const auto at = manifest_.tensors.find(name);
  if (at == manifest_.tensors.end())
    throw DataError(path_.string() + ": the checkpoint must hold the tensor " +
                    shardwright::detail::quoted_text(name) + ", but none of its " +
                    std::to_string(manifest_.tensors.size()) +
                    " has that name (was it saved by another model?)");
  return at->second;
}

SHARDWRIGHT_INLINE void Reader::read(const std::string& name, std::size_t number,
                                     std::span<std::byte> out) const {
  const SavedTensor& from = tensor(name);
  if (number >= from.blocks.size())
    throw InvalidArgument("checkpoint: tensor " + shardwright::detail::quoted_text(name) + " has " +
                          std::to_string(from.blocks.size()) + " blocks, but number " +
                          std::to_string(number) + " was requested");
  const SavedBlock& block = from.blocks[number];
  const safetensors::File& file = *parts_.at(block.file);
  file.read(block_name(name, from.shape, block.offset, block.extent), out);
  if (hash_of(out) != block.hash)
    refuse_changed(file, name, block);
}

SHARDWRIGHT_INLINE safetensors::Dtype Reader::require(const std::string& name, safetensors::Dtype wanted,
                                                      const std::vector<std::uint64_t>& shape,
                                                      bool convert) const {
  const SavedTensor& saved = tensor(name);
  if (saved.shape != shape ||
      (saved.dtype != wanted && !(convert && detail::is_real(saved.dtype) && detail::is_real(wanted))))
    throw DataError(path_.string() + ": tensor " + shardwright::detail::quoted_text(name) + " must be " +
                    std::string(safetensors::name_of(wanted)) + " " + safetensors::detail::shape_text(shape) +
                    ", but " + std::string(safetensors::name_of(saved.dtype)) + " " +
                    safetensors::detail::shape_text(saved.shape) +
                    " was saved (load it into a tensor of that kind, and convert it)");
  return saved.dtype;
}

SHARDWRIGHT_INLINE bool Reader::holds(const std::string& name) const {
  return manifest_.tensors.contains(name);
}

SHARDWRIGHT_INLINE void Reader::read(const std::string& name, const safetensors::BlockOf& wanted,
                                     std::span<std::byte> out) const {
  const SavedTensor& from = tensor(name);
  const std::uint64_t size = safetensors::bits_of(from.dtype) / 8;
  check_wanted(name, from, wanted, out.size());
  std::vector<std::byte> part;
  for (const SavedBlock& block : from.blocks) {
    safetensors::BlockOf in_file, in_wanted;
    std::uint64_t bytes = size;
    for (std::size_t d = 0; d < from.shape.size(); ++d) {
      const std::uint64_t begin = std::max(block.offset[d], wanted.offset[d]);
      const std::uint64_t end =
          std::min(block.offset[d] + block.extent[d], wanted.offset[d] + wanted.extent[d]);
      in_file.offset.push_back(begin - block.offset[d]);
      in_wanted.offset.push_back(begin - wanted.offset[d]);
      in_file.extent.push_back(end > begin ? end - begin : 0);
      bytes *= in_file.extent.back();
    }
    if (bytes == 0)
      continue;
    const safetensors::File& file = *parts_.at(block.file);
    const std::string at = block_name(name, from.shape, block.offset, block.extent);
    if (bytes == out.size()) // exactly the requested elements, in order
      return file.read(at, in_file, out);
    part.resize(static_cast<std::size_t>(bytes));
    file.read(at, in_file, part);
    const safetensors::detail::BlockRuns runs(wanted.extent, in_wanted.offset, in_file.extent);
    std::size_t done = 0;
    runs.for_each([&](std::uint64_t element) {
      std::memcpy(out.data() + element * size, part.data() + done, runs.length() * size);
      done += runs.length() * size;
    });
  }
}

SHARDWRIGHT_INLINE void Reader::verify(std::size_t share, std::size_t shares) const {
  std::vector<std::byte> memory(hash_at_a_time);
  std::size_t number = 0;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const SavedBlock& block : tensor.blocks) {
      if (number++ % shares != share)
        continue;
      const safetensors::File& file = *parts_.at(block.file);
      detail::RunningHash hash;
      file.read_through(block_name(name, tensor.shape, block.offset, block.extent), memory,
                        [&](std::span<const std::byte> piece) { hash.add(piece); });
      if (hash.hash() != block.hash)
        refuse_changed(file, name, block);
    }
}

SHARDWRIGHT_INLINE void Reader::refuse_changed(const safetensors::File& file, const std::string& name,
                                               const SavedBlock& block) {
  detail::refuse(file.path().string(), "tensor " + shardwright::detail::quoted_text(name) + ", block " +
                                           detail::block_text(block) +
                                           ": the bytes must have the hash that was saved, but have changed");
}

SHARDWRIGHT_INLINE void Reader::check_regular(const std::filesystem::path& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, code);
  if (!std::filesystem::exists(status))
    detail::refuse(path.string(), "the checkpoint must have this file, but it is missing");
  if (!std::filesystem::is_regular_file(status))
    detail::refuse(path.string(), "it must be a regular file, and no symbolic link");
}

SHARDWRIGHT_INLINE void Reader::check_wanted(const std::string& name, const SavedTensor& from,
                                             const safetensors::BlockOf& wanted, std::size_t bytes) const {
  bool fits = wanted.offset.size() == from.shape.size() && wanted.extent.size() == from.shape.size();
  std::uint64_t size = safetensors::bits_of(from.dtype);
  for (std::size_t d = 0; fits && d < from.shape.size(); ++d) {
    fits = wanted.offset[d] <= from.shape[d] && wanted.extent[d] <= from.shape[d] - wanted.offset[d];
    size *= wanted.extent[d];
  }
  if (!fits || safetensors::bits_of(from.dtype) % 8 != 0 || size / 8 != bytes)
    throw InvalidArgument("checkpoint: tensor " + shardwright::detail::quoted_text(name) + " of " +
                          std::string(safetensors::name_of(from.dtype)) + " " +
                          safetensors::detail::shape_text(from.shape) +
                          " must contain the requested block, in whole bytes, but that has extent " +
                          safetensors::detail::shape_text(wanted.extent) + " at " +
                          safetensors::detail::shape_text(wanted.offset) + " and " + std::to_string(bytes) +
                          " bytes of memory");
}

SHARDWRIGHT_INLINE void Reader::open_part(const std::string& name, const SavedPart& part) {
  const std::filesystem::path path = path_ / name;
  check_regular(path);
  auto file = std::make_shared<const safetensors::File>(path);
  if (file->bytes() != part.bytes)
    detail::refuse(path.string(), "it must have the " + std::to_string(part.bytes) +
                                      " bytes that were saved, but has " + std::to_string(file->bytes()));
  if (hash_of(file->head()) != part.header_hash)
    detail::refuse(path.string(), "its header must have the hash that was saved, but bytes have changed");
  parts_.emplace(name, std::move(file));
}

SHARDWRIGHT_INLINE void Reader::check_place(const std::string& name, const SavedTensor& tensor,
                                            const SavedBlock& block) const {
  const safetensors::File& file = *parts_.at(block.file);
  const safetensors::Entry* const entry =
      file.header().find(block_name(name, tensor.shape, block.offset, block.extent));
  if (entry == nullptr || entry->dtype != tensor.dtype || entry->shape != block.extent)
    detail::refuse(file.path().string(), "it must hold block " + detail::block_text(block) + " of tensor " +
                                             shardwright::detail::quoted_text(name) +
                                             ", as the manifest says");
}

SHARDWRIGHT_INLINE Newest newest(const std::filesystem::path& directory, Check check) {
  Newest out;
  const std::vector<std::uint64_t> steps = saved_steps(directory);
  for (auto step = steps.rbegin(); step != steps.rend() && !out.path; ++step) {
    const std::filesystem::path path = directory / ("step-" + std::to_string(*step));
    try {
      const Reader reader(path);
      if (check == Check::all)
        reader.verify();
      out.path = path;
    } catch (const DataError& error) {
      out.refused.emplace_back(error.what());
    }
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
