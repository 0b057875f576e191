// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The parameters of a published model: their shapes here, and the tensors of its files that hold
/// them.

#include "weights.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/safetensors/write.hpp>
#include <shardwright/io/write_text.hpp>

#include <map>
#include <numeric>
#include <utility>

namespace generate {
namespace {

using Sizes = std::vector<std::uint64_t>;

constexpr std::uint64_t u(std::int64_t number) { return static_cast<std::uint64_t>(number); }
constexpr std::size_t z(std::int64_t number) { return static_cast<std::size_t>(number); }

/// The name of a parameter's tensor, or of one of those that it holds side by side.
std::string tensor_name(const Settings& settings, const Parameter& parameter, const std::string& which = {}) {
  const std::string layer = "model.layers." + std::to_string(parameter.layer) + ".";
  const std::string attention = layer + "self_attn.";
  const std::string expert = layer + "block_sparse_moe.experts." + std::to_string(parameter.expert) + ".";
  const bool experts = settings.experts > 0;
  switch (parameter.part) {
  case Part::embedding:
    return "model.embed_tokens.weight";
  case Part::attention_norm:
    return layer + "input_layernorm.weight";
  case Part::qkv:
    return attention + which + "_proj.weight";
  case Part::qkv_bias:
    return attention + which + "_proj.bias";
  case Part::query_norm:
    return attention + "q_norm.weight";
  case Part::key_norm:
    return attention + "k_norm.weight";
  case Part::out:
    return attention + "o_proj.weight";
  case Part::out_bias:
    return attention + "o_proj.bias";
  case Part::mlp_norm:
    return layer + "post_attention_layernorm.weight";
  case Part::gate_up:
    return experts ? expert + (which == "gate" ? "w1" : "w3") + ".weight"
                   : layer + "mlp." + which + "_proj.weight";
  case Part::down:
    return experts ? expert + "w2.weight" : layer + "mlp.down_proj.weight";
  case Part::router:
    return layer + "block_sparse_moe.gate.weight";
  case Part::final_norm:
    return "model.norm.weight";
  case Part::head:
    return "lm_head.weight";
  }
  return {};
}

/// Queries, keys and values of the groups of a block, with all columns that it has.
std::vector<Piece> qkv_pieces(const Settings& settings, const Parameter& parameter, bool bias,
                              std::span<const std::int64_t> offset, std::span<const std::int64_t> extent) {
  const std::int64_t queries = settings.heads / settings.kv_heads, d = settings.head_width;
  const std::size_t groups = bias ? 0 : 1; // the dimension of groups
  const std::int64_t row = (queries + 2) * d, stride = extent[groups] * row;
  std::vector<Piece> out;
  for (std::int64_t g = 0; g < extent[groups]; ++g) {
    const std::int64_t group = offset[groups] + g;
    const auto add = [&](const char* which, std::int64_t heads_of_group, std::int64_t place) {
      const std::int64_t heads = heads_of_group * d;
      Piece piece{.tensor = tensor_name(settings, parameter, which),
                  .shape = {u(settings.kv_heads * heads)},
                  .part = {{u(group * heads)}, {u(heads)}},
                  .first = z(g * row + place * d),
                  .strides = {1}};
      if (!bias) {
        piece.shape.push_back(u(settings.width));
        piece.part.offset.push_back(u(offset[0]));
        piece.part.extent.push_back(u(extent[0]));
        piece.strides.push_back(z(stride));
      }
      out.push_back(std::move(piece));
    };
    add("q", queries, 0);
    add("k", 1, queries);
    add("v", 1, queries + 1);
  }
  return out;
}

} // namespace

std::vector<std::int64_t> shape_of(const Settings& settings, Part part) {
  const std::int64_t group = (settings.heads / settings.kv_heads + 2) * settings.head_width;
  switch (part) {
  case Part::embedding:
  case Part::head:
    return {settings.vocabulary, settings.width};
  case Part::qkv:
    return {settings.width, settings.kv_heads, group};
  case Part::qkv_bias:
    return {settings.kv_heads, group};
  case Part::query_norm:
  case Part::key_norm:
    return {settings.head_width};
  case Part::out:
    return {settings.heads * settings.head_width, settings.width};
  case Part::gate_up:
    return {settings.width, 2, settings.hidden};
  case Part::down:
    return {settings.hidden, settings.width};
  case Part::router:
    return {settings.width, settings.experts};
  default:
    return {settings.width};
  }
}

std::vector<Piece> pieces_of(const Settings& settings, const Parameter& parameter,
                             std::span<const std::int64_t> offset, std::span<const std::int64_t> extent) {
  const auto whole = shape_of(settings, parameter.part);
  const auto piece = [&](const std::string& name, std::size_t rows, std::size_t columns, std::size_t first,
                         std::size_t row_stride, std::size_t column_stride) {
    return Piece{name,
                 {u(whole[rows]), u(whole[columns])},
                 {{u(offset[rows]), u(offset[columns])}, {u(extent[rows]), u(extent[columns])}},
                 first,
                 {row_stride, column_stride}};
  };
  switch (parameter.part) {
  case Part::qkv:
    return qkv_pieces(settings, parameter, false, offset, extent);
  case Part::qkv_bias:
    return qkv_pieces(settings, parameter, true, offset, extent);
  case Part::embedding:
  case Part::head:
    return {piece(tensor_name(settings, parameter), 0, 1, 0, z(extent[1]), 1)};
  case Part::out:
  case Part::down:
  case Part::router:
    return {piece(tensor_name(settings, parameter), 1, 0, 0, 1, z(extent[1]))};
  case Part::gate_up:
    return {piece(tensor_name(settings, parameter, "gate"), 2, 0, 0, 1, z(2 * extent[2])),
            piece(tensor_name(settings, parameter, "up"), 2, 0, z(extent[2]), 1, z(2 * extent[2]))};
  default:
    return {{tensor_name(settings, parameter), {u(whole[0])}, {{u(offset[0])}, {u(extent[0])}}, 0, {1}}};
  }
}

std::vector<Parameter> layer_parameters(const Settings& settings, std::int64_t layer) {
  std::vector<Parameter> out{{Part::attention_norm, layer}, {Part::qkv, layer}};
  if (settings.qkv_bias)
    out.push_back({Part::qkv_bias, layer});
  if (settings.head_norms)
    out.insert(out.end(), {{Part::query_norm, layer}, {Part::key_norm, layer}});
  out.push_back({Part::out, layer});
  if (settings.out_bias)
    out.push_back({Part::out_bias, layer});
  out.push_back({Part::mlp_norm, layer});
  if (settings.experts > 0)
    out.push_back({Part::router, layer});
  for (std::int64_t expert = 0; expert < std::max<std::int64_t>(settings.experts, 1); ++expert)
    out.insert(out.end(), {{Part::gate_up, layer, expert}, {Part::down, layer, expert}});
  return out;
}

std::vector<Parameter> all_parameters(const Settings& settings) {
  std::vector<Parameter> out{{Part::embedding}};
  for (std::int64_t layer = 0; layer < settings.layers; ++layer)
    for (const Parameter& parameter : layer_parameters(settings, layer))
      out.push_back(parameter);
  out.push_back({Part::final_norm});
  if (!settings.tied_embedding)
    out.push_back({Part::head});
  return out;
}

void check_tensors(const Settings& settings, const sw::safetensors::Files& files) {
  std::map<std::string, Sizes> wanted;
  for (const Parameter& parameter : all_parameters(settings)) {
    const auto shape = shape_of(settings, parameter.part);
    for (Piece& piece : pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape))
      wanted.emplace(std::move(piece.tensor), std::move(piece.shape));
  }
  std::vector<std::string> faults;
  for (const auto& [name, shape] : wanted) {
    if (!files.contains(name)) {
      faults.push_back(name + " is missing");
      continue;
    }
    using sw::safetensors::Dtype;
    const sw::safetensors::Entry& entry = files.file_of(name).entry(name);
    if (entry.shape != shape)
      faults.push_back(name + " must be " + sw::safetensors::detail::shape_text(shape) + ", but is " +
                       sw::safetensors::detail::shape_text(entry.shape));
    else if (entry.dtype != Dtype::bf16 && entry.dtype != Dtype::f16 && entry.dtype != Dtype::f32)
      faults.push_back(name + " must be BF16, F16 or F32, but is " +
                       std::string(sw::safetensors::name_of(entry.dtype)));
  }
  for (const std::string& name : files.names()) {
    // Old files hold the frequencies too, which follow from the settings, and some a copy of a tied table.
    const bool follows =
        name.ends_with("rotary_emb.inv_freq") || (settings.tied_embedding && name == "lm_head.weight");
    if (!wanted.contains(name) && !follows)
      faults.push_back(sw::detail::quoted_text(name) + " belongs to no parameter");
  }
  if (faults.empty())
    return;
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

void write_model(const std::filesystem::path& directory, const Settings& settings,
                 const std::function<std::vector<float>(const Parameter&)>& values) {
  std::map<std::string, std::pair<Sizes, std::vector<float>>> tensors;
  for (const Parameter& parameter : all_parameters(settings)) {
    const auto shape = shape_of(settings, parameter.part);
    const std::vector<float> whole = values(parameter);
    for (const Piece& piece :
         pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape)) {
      auto& [sizes, elements] = tensors[piece.tensor];
      sizes = piece.shape;
      elements.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies<>()));
      const bool matrix = piece.strides.size() == 2;
      const std::size_t columns = matrix ? piece.shape[1] : 1;
      for (std::size_t row = 0; row < piece.part.extent[0]; ++row)
        for (std::size_t column = 0; column < (matrix ? piece.part.extent[1] : 1); ++column)
          elements[(piece.part.offset[0] + row) * columns + column] =
              whole[piece.first + row * piece.strides[0] + (matrix ? column * piece.strides[1] : 0)];
    }
  }
  std::vector<sw::safetensors::Source> sources;
  for (const auto& [name, tensor] : tensors)
    sources.push_back(sw::safetensors::source<float>(name, tensor.first, tensor.second));
  constexpr std::uint64_t most_bytes = std::uint64_t{4} << 30; // of one file
  std::filesystem::create_directories(directory);
  sw::safetensors::write_sharded(directory, sources, most_bytes, {{"format", "pt"}});
  sw::write_text(directory / "config.json", settings_text(settings));
}

namespace detail {

void widen(std::span<const std::byte> from, sw::safetensors::Dtype dtype, std::span<float> to) {
  const auto convert = [&]<class Element>(Element) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      Element element;
      std::memcpy(&element, from.data() + i * sizeof(Element), sizeof(Element));
      to[i] = static_cast<float>(element);
    }
  };
  if (dtype == sw::safetensors::Dtype::bf16)
    convert(sw::bfloat16());
  else if (dtype == sw::safetensors::Dtype::f16)
    convert(sw::float16());
  else
    convert(float());
}

void read_piece(
    const sw::safetensors::Files& files, const Piece& piece,
    const std::function<void(std::size_t first_row, std::size_t rows, std::span<const float>)>& place) {
  const sw::safetensors::File& file = files.file_of(piece.tensor);
  const sw::safetensors::Entry& entry = file.entry(piece.tensor);
  const std::size_t element = sw::safetensors::bits_of(entry.dtype) / 8;
  const std::uint64_t rows = piece.part.extent[0];
  const std::uint64_t columns = piece.part.extent.size() == 2 ? piece.part.extent[1] : 1;
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
    place(row, part.extent[0], std::span<const float>(values).first(count));
  }
}

} // namespace detail
} // namespace generate
