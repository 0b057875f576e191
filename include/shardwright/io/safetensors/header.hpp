// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The header of a safetensors file: read with every rule of the format checked, and written.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/header_events.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief The maximum size of a header's text in bytes.
inline constexpr std::uint64_t most_header_bytes = 100'000'000;

/// @brief A file's metadata and its tensors, sorted by position, without gaps.
struct Header {
  std::vector<Entry> tensors;
  Metadata metadata;
  std::uint64_t data_begin = 0; ///< Where the data begin in the file.

  /// @brief The tensor of that name; null if there is none. Logarithmic.
  [[nodiscard]] const Entry* find(std::string_view name) const noexcept {
    const auto at =
        std::lower_bound(by_name.begin(), by_name.end(), name,
                         [this](std::size_t i, std::string_view n) { return tensors[i].name < n; });
    return at == by_name.end() || tensors[*at].name != name ? nullptr : &tensors[*at];
  }

  std::vector<std::size_t> by_name; ///< Indices of `tensors`, sorted by name.
};

/// @brief The size of a tensor of this shape in bytes; nothing if it exceeds 64 bits or is not a whole number
/// of bytes.
[[nodiscard]] constexpr std::optional<std::uint64_t>
bytes_of(Dtype dtype, const std::vector<std::uint64_t>& shape) noexcept {
  const std::uint64_t bits = bits_of(dtype);
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    if (extent != 0 && elements > std::numeric_limits<std::uint64_t>::max() / extent)
      return std::nullopt;
    elements *= extent;
  }
  if (elements > std::numeric_limits<std::uint64_t>::max() / bits || elements * bits % 8 != 0)
    return std::nullopt;
  return elements * bits / 8;
}

namespace detail {

[[noreturn, gnu::noinline]] inline void refuse(const std::string& subject, const std::string& what) {
  throw DataError(subject + ": " + what);
}

[[nodiscard]] inline std::string shape_text(const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t most = 8;
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(most, shape.size()); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + (shape.size() > most ? ", ...]" : "]");
}

/// Checks that each name occurs once and that the ranges follow one another from 0 to the end.
inline void check_entries(Header& header, std::uint64_t data_bytes, const std::string& subject) {
  const auto quoted = [](const std::string& name) { return shardwright::detail::quoted_text(name); };
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  header.by_name.resize(header.tensors.size());
  for (std::size_t i = 0; i < header.by_name.size(); ++i)
    header.by_name[i] = i;
  const auto& tensors = header.tensors;
  std::sort(header.by_name.begin(), header.by_name.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (const std::string& name = tensors[header.by_name[i]].name;
        tensors[header.by_name[i - 1]].name == name)
      refuse(subject, "a header must name each tensor once, but " + quoted(name) +
                          " appears twice (write the file again)");
  std::uint64_t end = 0;
  for (const Entry& entry : tensors) {
    const std::optional<std::uint64_t> bytes = bytes_of(entry.dtype, entry.shape);
    const std::string tensor = "tensor " + quoted(entry.name);
    if (!bytes)
      refuse(subject, tensor + ": its shape " + shape_text(entry.shape) + " must fill whole bytes of " +
                          std::string(name_of(entry.dtype)) +
                          ", whose number must fit in 64 bits (write the file again)");
    if (entry.begin != end || entry.end < entry.begin)
      refuse(subject, tensor + ": its bytes must follow the tensor before it, from " + std::to_string(end) +
                          " on, but data_offsets are [" + std::to_string(entry.begin) + ", " +
                          std::to_string(entry.end) + "] (write the file again)");
    if (entry.end - entry.begin != *bytes)
      refuse(subject, tensor + ": data_offsets must span the " + std::to_string(*bytes) + " bytes of " +
                          std::string(name_of(entry.dtype)) + " " + shape_text(entry.shape) +
                          ", but they span " + std::to_string(entry.end - entry.begin) +
                          " (write the file again)");
    end = entry.end;
  }
  if (end != data_bytes)
    refuse(subject, "its tensors must fill the file, which has " + std::to_string(data_bytes) +
                        " bytes of data, but they end at " + std::to_string(end) +
                        (end > data_bytes ? " (it was cut short: fetch it again)" : " (fetch it again)"));
}

/// The size of the header's text in bytes, from the first 8 bytes of a file of `file_bytes` bytes.
/// @throws DataError if the file has no room for them, or they are more than `most_header_bytes`.
[[nodiscard]] inline std::uint64_t header_bytes(std::string_view first, std::uint64_t file_bytes,
                                                const std::string& subject) {
  if (first.size() < 8)
    refuse(subject,
           "a safetensors file must begin with 8 bytes that say how long its header is, but it has " +
               std::to_string(first.size()) + " (it was cut short: fetch it again)");
  std::uint64_t bytes = 0;
  for (std::size_t i = 8; i-- > 0;)
    bytes = bytes << 8U | static_cast<unsigned char>(first[i]);
  if (bytes > most_header_bytes)
    refuse(subject, "the header of a safetensors file must have at most 100000000 bytes, but this one says " +
                        std::to_string(bytes) + " (is it a safetensors file?)");
  if (bytes > file_bytes - 8)
    refuse(subject, "its header must lie inside the file, but has " + std::to_string(bytes) + " of " +
                        std::to_string(file_bytes) + " bytes (it was cut short: fetch it again)");
  return bytes;
}

} // namespace detail

/// @brief Parses the header of a file with the given number of data bytes after it.
///
/// Stricter than the reference implementation in three cases, in which that would ignore part of the file: a
/// tensor named twice, a field of a tensor other than dtype, shape and data_offsets, and a null metadata
/// value.
/// @param subject the file, for messages
/// @throws DataError naming the tensor and the rule that does not hold.
/// @note Uses a few times the memory of the text, whatever numbers it contains.
[[nodiscard]] inline Header parse_header(std::string_view text, std::uint64_t data_bytes,
                                         const std::string& subject) {
  if (text.empty() || text.front() != '{')
    detail::refuse(subject, "the header must begin with '{' (is it a safetensors file?)");
  // The JSON reader treats a zero byte as the end.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    detail::refuse(subject, "the header must be JSON, but has a zero byte at " + std::to_string(zero) +
                                " (write the file again)");
  Header header;
  detail::HeaderEvents events(header.tensors, header.metadata);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events))
    detail::refuse(subject, events.mistake());
  header.data_begin = 8 + text.size();
  detail::check_entries(header, data_bytes, subject);
  return header;
}

/// @brief The header of a file in memory.
/// @throws DataError as parse_header() does, and if the header exceeds the file or `most_header_bytes`.
[[nodiscard]] inline Header read_header(std::string_view file, const std::string& subject) {
  const std::uint64_t bytes = detail::header_bytes(file, file.size(), subject);
  return parse_header(file.substr(8, bytes), file.size() - 8 - bytes, subject);
}

/// @brief The first bytes of a file with these tensors, in order: the length, the text, and spaces up to a
/// multiple of `alignment`.
///
/// Offsets are assigned from 0 in the order given; sets `begin` and `end` of the entries.
/// @param alignment of the data in the file, a multiple of 8
/// @throws InvalidArgument for a name that is used twice, is not UTF-8 or is "__metadata__", a tensor that
/// does not fill whole bytes, or a text longer than `most_header_bytes`.
[[nodiscard]] inline std::string header_text(std::vector<Entry>& tensors, const Metadata& metadata = {},
                                             std::size_t alignment = 8) {
  detail::HeaderText text(metadata);
  std::uint64_t end = 0;
  std::vector<std::string_view> names;
  for (Entry& entry : tensors) {
    const std::string tensor = "safetensors: tensor " + shardwright::detail::quoted_text(entry.name);
    const std::optional<std::uint64_t> bytes = bytes_of(entry.dtype, entry.shape);
    if (!bytes || *bytes > std::numeric_limits<std::uint64_t>::max() - end)
      throw InvalidArgument(tensor + " must fill whole bytes that fit in 64 bits, but its shape is " +
                            detail::shape_text(entry.shape) + " of " + std::string(name_of(entry.dtype)));
    entry.begin = end;
    entry.end = end += *bytes;
    text.add(entry);
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw InvalidArgument("safetensors: each tensor must have a unique name, but " +
                          shardwright::detail::quoted_text(*twice) + " is given twice (rename one)");
  std::string out = text.finish(alignment);
  if (out.size() - 8 > most_header_bytes)
    throw InvalidArgument("safetensors: the header of a file must have at most 100000000 bytes, but it has " +
                          std::to_string(out.size() - 8) + " (write several files)");
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
