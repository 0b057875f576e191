// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Manifests as JSON that ends with a hash of itself.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/block_hash.hpp>
#include <shardwright/io/checkpoint/cover.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief The maximum size of a manifest in bytes.
inline constexpr std::size_t most_manifest_bytes = std::size_t{1} << 30;

namespace detail {

inline constexpr std::string_view hash_field = ",\n\"xxh3_128\": \"";
inline constexpr std::string_view hash_end = "\"}\n";

[[noreturn, gnu::noinline]] inline void refuse(const std::string& subject, const std::string& what) {
  throw DataError(subject + ": " + what + " (the checkpoint is damaged: use another)");
}

/// A required member of a manifest, with its type.
class Field {
public:
  Field(const nlohmann::json& value, std::string name, const std::string& subject)
      : value_(value), name_(std::move(name)), subject_(subject) {}

  [[nodiscard]] Field operator[](const char* name) const {
    const auto at = object().find(name);
    if (at == value_.end())
      refuse(subject_, name_ + " must have the field " + name);
    return {*at, name_ + "." + name, subject_};
  }
  [[nodiscard]] const nlohmann::json& object() const { return expect(value_.is_object(), "an object"); }
  [[nodiscard]] std::string text() const { return expect(value_.is_string(), "a text").get<std::string>(); }
  [[nodiscard]] std::uint64_t number() const {
    return expect(value_.is_number_unsigned(), "a whole number").get<std::uint64_t>();
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> out;
    for_each([&](const Field& element) { out.push_back(element.number()); });
    return out;
  }
  [[nodiscard]] BlockHash hash() const {
    const std::optional<BlockHash> out = find_hash(text());
    (void)expect(out.has_value(), "32 hexadecimal digits");
    return *out;
  }
  template <class Visit> void for_each(const Visit& visit) const {
    for (const nlohmann::json& element : expect(value_.is_array(), "a list"))
      visit(Field(element, name_, subject_));
  }
  template <class Visit> void for_each_member(const Visit& visit) const {
    for (const auto& [name, member] : object().items())
      visit(name, Field(member, name_ + " " + shardwright::detail::quoted_text(name), subject_));
  }
  [[noreturn]] void refuse_for(const std::string& fault) const { refuse(subject_, name_ + ": " + fault); }
  [[nodiscard]] const nlohmann::json& expect(bool holds, const char* what) const {
    if (!holds)
      refuse(subject_, name_ + " must be " + what);
    return value_;
  }

private:
  const nlohmann::json& value_;
  std::string name_;
  const std::string& subject_;
};

/// "part-" and digits: nothing that could lead out of the directory.
[[nodiscard]] inline bool is_part_name(std::string_view name) {
  constexpr std::string_view begin = "part-", end = ".safetensors";
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end))
    return false;
  name = name.substr(begin.size(), name.size() - begin.size() - end.size());
  return name.size() < 20 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// @param whole whether the blocks must cover the tensor; those of a single writer need not
[[nodiscard]] inline SavedTensor tensor_of(const Field& field, const std::map<std::string, SavedPart>& parts,
                                           bool whole) {
  SavedTensor out;
  const std::optional<safetensors::Dtype> dtype = safetensors::find_dtype(field["dtype"].text());
  (void)field.expect(dtype.has_value(), "of an element type of safetensors");
  out.dtype = *dtype;
  out.shape = field["shape"].numbers();
  out.layout = field["layout"].text();
  field["blocks"].for_each([&](const Field& block) {
    out.blocks.push_back({block["offset"].numbers(), block["extent"].numbers(), block["file"].text(),
                          block["bytes"].number(), block["xxh3_128"].hash()});
    (void)block.expect(parts.contains(out.blocks.back().file), "in a file of the checkpoint");
  });
  const std::string fault = whole ? cover_fault(out) : std::string();
  if (!fault.empty())
    field.refuse_for(fault);
  return out;
}

[[nodiscard]] inline Manifest manifest_of(const Field& field, bool whole) {
  Manifest out;
  out.description.step = field["step"].number();
  out.description.mesh = field["mesh"].text();
  out.description.configuration_hash = field["configuration_hash"].text();
  field["more"].for_each_member(
      [&](const std::string& name, const Field& text) { out.description.more[name] = text.text(); });
  field["parts"].for_each_member([&](const std::string& name, const Field& part) {
    (void)part.expect(is_part_name(name), "called part-NUMBER.safetensors");
    out.parts[name] = {part["bytes"].number(), part["header_xxh3_128"].hash()};
  });
  field["tensors"].for_each_member([&](const std::string& name, const Field& tensor) {
    out.tensors[name] = tensor_of(tensor, out.parts, whole);
  });
  return out;
}

} // namespace detail

/// @brief A manifest as JSON, which ends with the hash of everything before it.
/// @throws InvalidArgument for a text that is not UTF-8.
[[nodiscard]] inline std::string manifest_text(const Manifest& manifest) {
  const Description& about = manifest.description;
  nlohmann::json parts = nlohmann::json::object(), tensors = nlohmann::json::object();
  for (const auto& [name, part] : manifest.parts)
    parts[name] = {{"bytes", part.bytes}, {"header_xxh3_128", part.header_hash.text()}};
  for (const auto& [name, tensor] : manifest.tensors) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const SavedBlock& block : tensor.blocks)
      blocks.push_back({{"offset", block.offset},
                        {"extent", block.extent},
                        {"file", block.file},
                        {"bytes", block.bytes},
                        {"xxh3_128", block.hash.text()}});
    tensors[name] = {{"dtype", safetensors::name_of(tensor.dtype)},
                     {"shape", tensor.shape},
                     {"layout", tensor.layout},
                     {"blocks", std::move(blocks)}};
  }
  const nlohmann::json whole = {{"version", manifest_version},
                                {"library", "shardwright " + std::to_string(SHARDWRIGHT_VERSION_MAJOR) + "." +
                                                std::to_string(SHARDWRIGHT_VERSION_MINOR)},
                                {"step", about.step},
                                {"mesh", about.mesh},
                                {"configuration_hash", about.configuration_hash},
                                {"more", about.more},
                                {"parts", std::move(parts)},
                                {"tensors", std::move(tensors)}};
  std::string text;
  try {
    text = "{\"manifest\": " + whole.dump() + std::string(detail::hash_field);
  } catch (const nlohmann::json::type_error&) {
    throw InvalidArgument(
        "checkpoint: names and descriptions must be UTF-8, but one holds other bytes (rename it)");
  }
  return text + hash_of(text).text() + std::string(detail::hash_end);
}

namespace detail {

[[nodiscard]] inline Manifest parse_contents(std::string_view text, const std::string& subject, bool whole) {
  const std::size_t tail = hash_field.size() + 32 + hash_end.size();
  const std::size_t hashed = text.size() < tail ? 0 : text.size() - 32 - hash_end.size();
  if (hashed == 0 || !text.ends_with(hash_end) || !text.substr(0, hashed).ends_with(hash_field))
    refuse(subject, "a manifest must end with its hash");
  if (find_hash(text.substr(hashed, 32)) != hash_of(text.substr(0, hashed)))
    refuse(subject, "a manifest must have the hash that it ends with, but bytes have changed");
  const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded())
    refuse(subject, "a manifest must be JSON");
  const Field field = Field(json, "the file", subject)["manifest"];
  if (const std::uint64_t version = field["version"].number(); version != manifest_version)
    throw DataError(subject + ": a manifest must be of version " + std::to_string(manifest_version) +
                    ", but this one is of version " + std::to_string(version) +
                    " (load it with the library that wrote it, or a newer one)");
  return manifest_of(field, whole);
}

} // namespace detail

/// @brief Parses a manifest and checks its hash, its version, every field, and that the blocks of each tensor
/// cover it exactly once.
/// @param subject the file, for messages
/// @throws DataError naming the field that is missing or wrong.
[[nodiscard]] inline Manifest parse_manifest(std::string_view text, const std::string& subject) {
  return detail::parse_contents(text, subject, true);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
