// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The parameters of a published model: their shapes here, and the tensors of its files that hold
/// them.

#include "weights.hpp"

#include <initializer_list>
#include <utility>

namespace pretrained {
namespace {

constexpr std::uint64_t u(std::int64_t number) { return static_cast<std::uint64_t>(number); }
constexpr std::size_t z(std::int64_t number) { return static_cast<std::size_t>(number); }

/// The name of a parameter's tensor, or of one of those that it holds side by side.
std::string tensor_name(const Settings& settings, const Parameter& parameter, const std::string& which = {}) {
  const std::string layer = "model.layers." + std::to_string(parameter.layer) + ".";
  const std::string attention = layer + "self_attn.";
  const bool mixtral = settings.family == "mixtral";
  const std::string mlp = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  const std::string expert = mlp + "experts." + std::to_string(parameter.expert) + ".";
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
  case Part::query_down:
    return attention + "q_a_proj.weight";
  case Part::query_down_norm:
    return attention + "q_a_layernorm.weight";
  case Part::query_up:
    return attention + (settings.latent->query_rank > 0 ? "q_b_proj.weight" : "q_proj.weight");
  case Part::key_value_down:
    return attention + "kv_a_proj_with_mqa.weight";
  case Part::key_value_down_norm:
    return attention + "kv_a_layernorm.weight";
  case Part::key_value_up:
    return attention + "kv_b_proj.weight";
  case Part::out:
    return attention + "o_proj.weight";
  case Part::out_bias:
    return attention + "o_proj.bias";
  case Part::mlp_norm:
    return layer + "post_attention_layernorm.weight";
  case Part::gate_up:
    return mlp + which + "_proj.weight";
  case Part::down:
    return mlp + "down_proj.weight";
  case Part::router:
    return mlp + "gate.weight";
  case Part::router_bias:
    return mlp + "gate.e_score_correction_bias";
  case Part::expert_gate_up:
    return expert + (mixtral ? which == "gate" ? "w1" : "w3" : which + "_proj") + ".weight";
  case Part::expert_down:
    return expert + (mixtral ? "w2" : "down_proj") + ".weight";
  case Part::shared_gate_up:
    return mlp + "shared_experts." + which + "_proj.weight";
  case Part::shared_down:
    return mlp + "shared_experts.down_proj.weight";
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
  case Part::query_down:
    return {settings.width, settings.latent->query_rank};
  case Part::query_down_norm:
    return {settings.latent->query_rank};
  case Part::query_up:
    return {settings.latent->query_rank > 0 ? settings.latent->query_rank : settings.width, settings.heads,
            settings.head_width};
  case Part::key_value_down:
    return {settings.width, settings.latent->key_value_rank + settings.latent->rotary_width};
  case Part::key_value_down_norm:
    return {settings.latent->key_value_rank};
  case Part::key_value_up:
    return {settings.heads, settings.latent->plain_width + settings.latent->value_width,
            settings.latent->key_value_rank};
  case Part::out:
    return {settings.heads * settings.value_width(), settings.width};
  case Part::gate_up:
    return {settings.width, 2, settings.hidden};
  case Part::down:
    return {settings.hidden, settings.width};
  case Part::router:
    return {settings.width, settings.experts.count};
  case Part::router_bias:
    return {settings.experts.count};
  case Part::expert_gate_up:
    return {settings.width, 2, settings.experts.hidden};
  case Part::expert_down:
    return {settings.experts.hidden, settings.width};
  case Part::shared_gate_up:
    return {settings.width, 2, settings.experts.shared_hidden};
  case Part::shared_down:
    return {settings.experts.shared_hidden, settings.width};
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
  case Part::query_up: // [in, heads, out of each], of a file's [heads * out, in]
    return {{tensor_name(settings, parameter),
             {u(whole[1] * whole[2]), u(whole[0])},
             {{u(offset[1] * whole[2]), u(offset[0])}, {u(extent[1] * whole[2]), u(extent[0])}},
             0,
             {1, z(extent[1] * whole[2])}}};
  case Part::key_value_up: // [heads, out of each, in], as in the file
    return {{tensor_name(settings, parameter),
             {u(whole[0] * whole[1]), u(whole[2])},
             {{u(offset[0] * whole[1]), u(offset[2])}, {u(extent[0] * whole[1]), u(extent[2])}},
             0,
             {z(extent[2]), 1}}};
  case Part::query_down:
  case Part::key_value_down:
  case Part::out:
  case Part::down:
  case Part::router:
  case Part::expert_down:
  case Part::shared_down:
    return {piece(tensor_name(settings, parameter), 1, 0, 0, 1, z(extent[1]))};
  case Part::gate_up:
  case Part::expert_gate_up:
  case Part::shared_gate_up:
    return {piece(tensor_name(settings, parameter, "gate"), 2, 0, 0, 1, z(2 * extent[2])),
            piece(tensor_name(settings, parameter, "up"), 2, 0, z(extent[2]), 1, z(2 * extent[2]))};
  default:
    return {{tensor_name(settings, parameter), {u(whole[0])}, {{u(offset[0])}, {u(extent[0])}}, 0, {1}}};
  }
}

std::vector<Parameter> layer_parameters(const Settings& settings, std::int64_t layer) {
  std::vector<Parameter> out{{Part::attention_norm, layer}};
  const auto add = [&](bool wanted, std::initializer_list<Part> parts, std::int64_t expert = 0) {
    for (const Part part : parts)
      if (wanted)
        out.push_back({part, layer, expert});
  };
  const bool latent = settings.latent.has_value();
  add(!latent, {Part::qkv});
  add(latent && settings.latent->query_rank > 0, {Part::query_down, Part::query_down_norm});
  add(latent, {Part::query_up, Part::key_value_down, Part::key_value_down_norm, Part::key_value_up});
  add(settings.qkv_bias, {Part::qkv_bias});
  add(settings.head_norms, {Part::query_norm, Part::key_norm});
  add(true, {Part::out});
  add(settings.out_bias, {Part::out_bias});
  add(true, {Part::mlp_norm});
  const bool experts = settings.has_experts(layer);
  add(!experts, {Part::gate_up, Part::down});
  add(experts, {Part::router});
  add(experts && settings.experts.sigmoid, {Part::router_bias});
  for (std::int64_t expert = 0; experts && expert < settings.experts.count; ++expert)
    add(true, {Part::expert_gate_up, Part::expert_down}, expert);
  add(experts && settings.experts.shared_hidden > 0, {Part::shared_gate_up, Part::shared_down});
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

} // namespace pretrained
