// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The files of a published model: checked, read by blocks, and written.

#include "tensor_files.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/core/low_precision.hpp>
#include <shardwright/io/new_file.hpp>
#include <shardwright/io/safetensors/write.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

namespace pretrained {
namespace {

using sw::safetensors::Dtype;
using Sizes = std::vector<std::uint64_t>;

std::string scale_name(const std::string& weight) { return weight + "_scale_inv"; }

/// The layer of a tensor; nothing if it belongs to none.
std::optional<std::int64_t> layer_of(const std::string& name) {
  constexpr std::string_view before = "model.layers.";
  std::int64_t out = 0;
  if (!name.starts_with(before))
    return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + before.size(), end, out);
  return error == std::errc() && stop != end && *stop == '.' ? std::optional(out) : std::nullopt;
}

Sizes scale_shape(const Settings& settings, const Sizes& weight) {
  const auto blocks = [](std::uint64_t count, std::int64_t size) {
    const auto by = static_cast<std::uint64_t>(size);
    return (count + by - 1) / by;
  };
  return {blocks(weight[0], settings.fp8_rows), blocks(weight[1], settings.fp8_columns)};
}

/// The fault of a tensor; empty if it has none.
std::string fault_of(const Settings& settings, const sw::safetensors::Files& files, const std::string& name,
                     const Sizes& shape) {
  if (!files.contains(name))
    return name + " is missing";
  const sw::safetensors::Entry& entry = files.file_of(name).entry(name);
  const auto text = [](const Sizes& sizes) { return sw::safetensors::detail::shape_text(sizes); };
  if (entry.shape != shape)
    return name + " must be " + text(shape) + ", but is " + text(entry.shape);
  if (entry.dtype == Dtype::bf16 || entry.dtype == Dtype::f16 || entry.dtype == Dtype::f32)
    return {};
  const bool scaled = settings.fp8_rows > 0 && shape.size() == 2;
  if (!scaled || entry.dtype != Dtype::f8_e4m3)
    return name + " must be BF16, F16 or F32" + (scaled ? ", or F8_E4M3 with scales" : "") + ", but is " +
           std::string(sw::safetensors::name_of(entry.dtype));
  const std::string scales = scale_name(name);
  if (!files.contains(scales))
    return scales + " is missing";
  const sw::safetensors::Entry& of = files.file_of(scales).entry(scales);
  if (of.shape != scale_shape(settings, shape) || of.dtype != Dtype::f32)
    return scales + " must be F32 " + text(scale_shape(settings, shape)) + ", but is " +
           std::string(sw::safetensors::name_of(of.dtype)) + " " + text(of.shape);
  return {};
}

[[noreturn]] void refuse(const sw::safetensors::Files& files, const std::vector<std::string>& faults) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, faults.size()); ++i)
    text += "\n  " + faults[i];
  if (faults.size() > most)
    text += "\n  and " + std::to_string(faults.size() - most) + " more";
  throw sw::DataError(
      files.files().front().path().parent_path().string() +
      ": the files must hold the tensors that config.json describes (fetch both again):" + text);
}

/// A number with 4 exponent and 3 fraction bits, without infinities (Micikevicius et al., arXiv 2209.05433).
float widened_fp8(std::byte byte) {
  const auto bits = std::to_integer<unsigned>(byte);
  const unsigned exponent = bits >> 3 & 15U, fraction = bits & 7U;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                             : std::ldexp(static_cast<float>(8 + fraction), static_cast<int>(exponent) - 10);
  if ((bits & 0x7fU) == 0x7fU)
    size = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80U) != 0 ? -size : size;
}

/// Elements of a file, widened.
void widen(std::span<const std::byte> from, Dtype dtype, std::span<float> to) {
  const auto convert = [&]<class Element>(Element) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      Element element;
      std::memcpy(&element, from.data() + i * sizeof(Element), sizeof(Element));
      to[i] = static_cast<float>(element);
    }
  };
  if (dtype == Dtype::bf16)
    convert(sw::bfloat16());
  else if (dtype == Dtype::f16)
    convert(sw::float16());
  else if (dtype == Dtype::f32)
    convert(float());
  else
    std::transform(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(to.size()), to.begin(),
                   &widened_fp8);
}

[[noreturn]] void refuse_number(const sw::safetensors::File& file, const Piece& piece,
                                std::pair<std::uint64_t, std::uint64_t> at, float value) {
  std::string place = std::to_string(at.first);
  if (piece.part.offset.size() == 2)
    place += ", " + std::to_string(piece.part.offset[1] + at.second);
  throw sw::DataError(file.path().string() + ": tensor " + sw::detail::quoted_text(piece.tensor) +
                      " must be finite, but element [" + place + "] is " +
                      (std::isnan(value) ? "not a number"
                       : value < 0       ? "-infinity"
                                         : "infinity") +
                      " (fetch the file again)");
}

/// Calls place(i, j, value) for the elements of a piece, several rows at a time.
template <class Place>
void read_piece(const sw::safetensors::Files& files, const Settings& settings, const Piece& piece,
                const Place& place) {
  const sw::safetensors::File& file = files.file_of(piece.tensor);
  const sw::safetensors::Entry& entry = file.entry(piece.tensor);
  const std::size_t element = sw::safetensors::bits_of(entry.dtype) / 8;
  const std::uint64_t rows = piece.part.extent[0];
  const std::uint64_t columns = piece.part.extent.size() == 2 ? piece.part.extent[1] : 1;
  std::vector<float> scales;
  std::uint64_t scales_of_row = 0;
  if (entry.dtype == Dtype::f8_e4m3) {
    scales = files.file_of(scale_name(piece.tensor)).read_as<float>(scale_name(piece.tensor));
    scales_of_row = scale_shape(settings, entry.shape)[1];
  }
  constexpr std::uint64_t together = 64;
  std::vector<std::byte> bytes(std::min(rows, together) * columns * element);
  std::vector<float> values(std::min(rows, together) * columns);
  for (std::uint64_t row = 0; row < rows; row += together) {
    sw::safetensors::BlockOf part = piece.part;
    part.offset[0] += row;
    part.extent[0] = std::min(together, rows - row);
    const std::size_t count = part.extent[0] * columns;
    file.read(piece.tensor, part, std::span(bytes).first(count * element));
    widen(bytes, entry.dtype, std::span(values).first(count));
    if (!scales.empty())
      for (std::size_t i = 0; i < count; ++i)
        values[i] *=
            scales[(part.offset[0] + i / columns) / static_cast<std::uint64_t>(settings.fp8_rows) *
                       scales_of_row +
                   (part.offset[1] + i % columns) / static_cast<std::uint64_t>(settings.fp8_columns)];
    for (std::size_t i = 0; i < count; ++i)
      if (!std::isfinite(values[i])) // else every score is one, too, and the text is of the first token alone
        refuse_number(file, piece, {part.offset[0] + i / columns, i % columns}, values[i]);
    // The rows read together stay in the cache, whatever the block's memory order.
    for (std::size_t column = 0; column < columns; ++column)
      for (std::size_t i = 0; i < part.extent[0]; ++i)
        place(row + i, column, values[i * columns + column]);
  }
}

std::size_t place_of(const Piece& piece, std::size_t row, std::size_t column) {
  return piece.first + row * piece.strides[0] + (piece.strides.size() == 2 ? column * piece.strides[1] : 0);
}

} // namespace

std::vector<std::string> check_tensors(const Settings& settings, const sw::safetensors::Files& files) {
  std::map<std::string, Sizes> wanted;
  for (const Parameter& parameter : all_parameters(settings)) {
    const auto shape = shape_of(settings, parameter.part);
    for (Piece& piece : pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape))
      wanted.emplace(std::move(piece.tensor), std::move(piece.shape));
  }
  std::vector<std::string> faults;
  for (const auto& [name, shape] : wanted)
    if (std::string fault = fault_of(settings, files, name, shape); !fault.empty())
      faults.push_back(std::move(fault));
  std::map<std::int64_t, std::size_t> passed_over;
  for (const std::string& name : files.names()) {
    // Old files also contain the frequencies, which follow from the settings, and some have a copy of a tied
    // table.
    const bool follows =
        name.ends_with("rotary_emb.inv_freq") || (settings.tied_embedding && name == "lm_head.weight");
    constexpr std::string_view scale = "_scale_inv";
    const bool scales = settings.fp8_rows > 0 && name.ends_with(scale) &&
                        wanted.contains(name.substr(0, name.size() - scale.size()));
    if (const auto layer = layer_of(name); settings.latent && layer && *layer >= settings.layers)
      ++passed_over[*layer];
    else if (!wanted.contains(name) && !follows && !scales)
      faults.push_back(sw::detail::quoted_text(name) + " belongs to no parameter");
  }
  if (!faults.empty())
    refuse(files, faults);
  std::vector<std::string> out;
  for (const auto& [layer, count] : passed_over)
    out.push_back("ignored: model.layers." + std::to_string(layer) + ", " + std::to_string(count) +
                  " tensors, a layer that predicts tokens after the next one");
  return out;
}

void read_pieces(const sw::safetensors::Files& files, const Settings& settings, std::span<const Piece> pieces,
                 std::span<float> block) {
  for (const Piece& piece : pieces)
    read_piece(files, settings, piece, [&](std::size_t row, std::size_t column, float value) {
      block[place_of(piece, row, column)] = value;
    });
}

void TensorWriter::add(std::span<const Piece> pieces, std::span<const float> block) {
  for (const Piece& piece : pieces) {
    auto& [shape, values] = tensors_[piece.tensor];
    shape = piece.shape;
    values.resize(std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>()));
    const bool matrix = piece.strides.size() == 2;
    const std::size_t columns = matrix ? shape[1] : 1, first_column = matrix ? piece.part.offset[1] : 0;
    for (std::size_t row = 0; row < piece.part.extent[0]; ++row)
      for (std::size_t column = 0; column < (matrix ? piece.part.extent[1] : 1); ++column)
        values[(piece.part.offset[0] + row) * columns + first_column + column] =
            block[place_of(piece, row, column)];
  }
}

void TensorWriter::write(const std::filesystem::path& directory, Dtype element,
                         const std::string& file) const {
  std::vector<std::vector<std::byte>> narrowed;
  const auto narrow = [&]<class Element>(Element, const std::vector<float>& values) {
    std::vector<std::byte>& out = narrowed.emplace_back(values.size() * sizeof(Element));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto number = static_cast<Element>(values[i]);
      std::memcpy(out.data() + i * sizeof(Element), &number, sizeof(Element));
    }
    return std::span<const std::byte>(out);
  };
  std::vector<sw::safetensors::Source> sources;
  for (const auto& [name, tensor] : tensors_)
    sources.push_back({name, element, tensor.shape,
                       element == Dtype::bf16  ? narrow(sw::bfloat16(), tensor.values)
                       : element == Dtype::f16 ? narrow(sw::float16(), tensor.values)
                                               : std::as_bytes(std::span(tensor.values))});
  constexpr std::uint64_t most_bytes = std::uint64_t{4} << 30; // of one file
  sw::detail::make_directories(directory);
  if (!file.empty())
    return sw::safetensors::write(directory / file, std::move(sources), {{"format", "pt"}});
  sw::safetensors::write_sharded(directory, sources, most_bytes, {{"format", "pt"}});
}

void require_new_model(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name.find(".safetensors") != name.npos)
      throw sw::InvalidArgument("--export " + directory.string() + " must have no model in it yet, but has " +
                                sw::detail::quoted_text(name) +
                                " (name a new directory, or remove the old model)");
  }
}

void write_model(const std::filesystem::path& directory, const Settings& settings,
                 const std::function<std::vector<float>(const Parameter&)>& values) {
  TensorWriter writer;
  for (const Parameter& parameter : all_parameters(settings)) {
    const auto shape = shape_of(settings, parameter.part);
    writer.add(pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape),
               values(parameter));
  }
  writer.write(directory, Dtype::f32);
  write_settings(directory, settings, "float32");
}

} // namespace pretrained
