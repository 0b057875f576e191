// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A safetensors header as JSON: the events of its reader, and its text.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/safetensors/dtype.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief A tensor of a file: row-major, little-endian.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape{}; ///< Elements of each dimension; none for a single value.
  std::uint64_t begin = 0;            ///< First byte, from the beginning of the data.
  std::uint64_t end = 0;              ///< One past the last byte.

  /// @brief Bytes of the tensor.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return end - begin; }
};

/// @brief A file's metadata: text by name, such as {"format", "pt"}.
using Metadata = std::map<std::string, std::string>;

namespace detail {

/// Rejects every event of a JSON parser; derived readers accept those of their format.
class RefusingEvents : public nlohmann::json_sax<nlohmann::json> {
public:
  /// The broken rule, as a sentence without a subject.
  [[nodiscard]] const std::string& mistake() const noexcept { return mistake_; }

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("true or false"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return misplaced("a number"); }
  bool number_float(number_float_t, const string_t&) override {
    return misplaced("a number that is not whole or exceeds 64 bits");
  }
  bool string(string_t&) override { return misplaced("a text"); }
  bool binary(binary_t&) override { return misplaced("bytes"); }
  bool start_object(std::size_t) override { return misplaced("an object"); }
  bool key(string_t&) override { return misplaced("a name"); }
  bool end_object() override { return misplaced("the end of an object"); }
  bool start_array(std::size_t) override { return misplaced("a list"); }
  bool end_array() override { return misplaced("the end of a list"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail("the text must be JSON in UTF-8, but breaks off at byte " + std::to_string(position) +
                " (write the file again)");
  }

protected:
  virtual bool misplaced(const char* what) = 0;
  bool fail(std::string mistake) {
    mistake_ = std::move(mistake);
    return false;
  }

private:
  std::string mistake_;
};

/// Accepts {"__metadata__": {text: text}, name: {"dtype": text, "shape": [number], "data_offsets": [number,
/// number]}}, and nothing else.
class HeaderEvents final : public RefusingEvents {
public:
  HeaderEvents(std::vector<Entry>& tensors, Metadata& metadata) : tensors_(tensors), metadata_(metadata) {}

  bool start_object(std::size_t) override {
    switch (at_) {
    case At::beginning:
      return go(At::names);
    case At::metadata:
      return go(At::metadata_names);
    case At::tensor:
      return go(At::fields);
    default:
      return misplaced("an object");
    }
  }

  bool end_object() override {
    if (at_ == At::fields && seen_ != all_fields)
      return fail(place() + " must name dtype, shape and data_offsets (write the file again)");
    return go(at_ == At::names ? At::end : At::names);
  }

  bool key(string_t& name) override {
    if (at_ == At::names) {
      if (name == "__metadata__") {
        if (std::exchange(has_metadata_, true))
          return fail("a header must hold __metadata__ once (write the file again)");
        return go(At::metadata);
      }
      tensors_.emplace_back().name = std::move(name);
      seen_ = 0;
      return go(At::tensor);
    }
    if (at_ == At::metadata_names) {
      key_ = std::move(name);
      return metadata_.contains(key_)
                 ? fail("__metadata__ must name " + shardwright::detail::quoted_text(key_) +
                        " once (write the file again)")
                 : go(At::metadata_text);
    }
    return field(name);
  }

  bool string(string_t& text) override {
    if (at_ == At::metadata_text) {
      metadata_.emplace(std::move(key_), std::move(text));
      return go(At::metadata_names);
    }
    if (at_ != At::dtype)
      return misplaced("a text");
    const std::optional<Dtype> dtype = find_dtype(text);
    if (!dtype)
      return fail(place() + " must have a dtype of the format, but it is " +
                  shardwright::detail::quoted_text(text) + " (use a newer version, or convert the file)");
    tensors_.back().dtype = *dtype;
    return go(At::fields);
  }

  bool start_array(std::size_t) override {
    offsets_ = 0;
    return at_ == At::shape ? go(At::extents) : at_ == At::offsets ? go(At::places) : misplaced("a list");
  }

  bool end_array() override {
    if (at_ == At::places && offsets_ != 2)
      return fail(place() + " must have two data_offsets (write the file again)");
    return go(At::fields);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::extents)
      tensors_.back().shape.push_back(value);
    else if (at_ == At::places && offsets_ < 2)
      (offsets_++ == 0 ? tensors_.back().begin : tensors_.back().end) = value;
    else
      return misplaced("a number");
    return true;
  }

private:
  enum class At {
    beginning,
    names,
    metadata,
    metadata_names,
    metadata_text,
    tensor,
    fields,
    dtype,
    shape,
    extents,
    offsets,
    places,
    end
  };
  static constexpr unsigned all_fields = 7;

  bool go(At at) {
    at_ = at;
    return true;
  }

  bool field(const std::string& name) {
    const unsigned bit = name == "dtype" ? 1U : name == "shape" ? 2U : name == "data_offsets" ? 4U : 0U;
    if (bit == 0)
      return fail(place() + " must have only the fields dtype, shape and data_offsets, but names " +
                  shardwright::detail::quoted_text(name) + " (use a newer version, or convert the file)");
    if ((seen_ & bit) != 0)
      return fail(place() + " must name " + name + " once (write the file again)");
    seen_ |= bit;
    return go(bit == 1 ? At::dtype : bit == 2 ? At::shape : At::offsets);
  }

  [[nodiscard]] std::string place() const {
    if (at_ >= At::tensor && at_ != At::end)
      return "tensor " + shardwright::detail::quoted_text(tensors_.back().name);
    return at_ >= At::metadata && at_ <= At::metadata_text ? "__metadata__" : "the header";
  }

  bool misplaced(const char* what) override {
    const char* const wanted = at_ == At::dtype                          ? "a text as dtype"
                               : at_ == At::shape                        ? "a list as shape"
                               : at_ == At::extents                      ? "whole numbers as shape"
                               : at_ == At::offsets || at_ == At::places ? "two whole numbers as data_offsets"
                               : at_ == At::metadata_text                ? "only strings"
                                                                         : "an object";
    return fail(place() + " must hold " + wanted + ", but there is " + what + " (write the file again)");
  }

  std::vector<Entry>& tensors_;
  Metadata& metadata_;
  At at_ = At::beginning;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  bool has_metadata_ = false;
  std::string key_;
};

/// Writes a header, in the reference implementation's order and without whitespace.
class HeaderText {
public:
  explicit HeaderText(const Metadata& metadata) {
    if (!metadata.empty())
      member("__metadata__", quoted(metadata));
  }

  void add(const Entry& entry) {
    if (entry.name == "__metadata__")
      throw InvalidArgument(
          "safetensors: a tensor must not be called __metadata__, which the format keeps for "
          "itself (rename it)");
    std::string shape;
    for (const std::uint64_t extent : entry.shape)
      shape.append(shape.empty() ? "" : ",").append(std::to_string(extent));
    member(entry.name, "{\"dtype\":\"" + std::string(name_of(entry.dtype)) + "\",\"shape\":[" + shape +
                           "],\"data_offsets\":[" + std::to_string(entry.begin) + "," +
                           std::to_string(entry.end) + "]}");
  }

  /// The length, the text, and spaces up to a multiple of `alignment`, itself a multiple of 8.
  [[nodiscard]] std::string finish(std::size_t alignment) {
    out_ += '}';
    out_.resize((out_.size() + alignment - 1) / alignment * alignment, ' ');
    std::uint64_t bytes = out_.size() - 8;
    for (std::size_t i = 0; i < 8; ++i, bytes >>= 8U)
      out_[i] = static_cast<char>(bytes & 0xffU);
    return std::move(out_);
  }

private:
  /// Text, or an object of texts, as JSON.
  [[nodiscard]] static std::string quoted(const nlohmann::json& value) {
    try {
      return value.dump();
    } catch (const nlohmann::json::type_error&) {
      throw InvalidArgument(
          "safetensors: names and metadata must be UTF-8, but one holds other bytes (rename "
          "it)");
    }
  }

  void member(const std::string& name, const std::string& value) {
    out_ += (out_.back() == '{' ? "" : ",") + quoted(name) + ":" + value;
  }

  std::string out_ = std::string(8, '\0') + "{";
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
