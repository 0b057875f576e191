// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parameters of a published model: their shapes here, and the tensors of its files that hold
/// them.

#include "settings.hpp"

#include <shardwright/io/safetensors/file.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pretrained {

/// @brief The kinds of parameters; a matrix is [in, out...] here and [out, in] in files.
enum class Part {
  embedding,           ///< [vocabulary, width]
  attention_norm,      ///< [width]
  qkv,                 ///< [width, kv_heads, (queries per kv head + 2) * head width]
  qkv_bias,            ///< [kv_heads, (queries per kv head + 2) * head width]
  query_norm,          ///< [head width]
  key_norm,            ///< [head width]
  query_down,          ///< [width, query rank]
  query_down_norm,     ///< [query rank]
  query_up,            ///< [query rank or width, heads, plain + rotary width]
  key_value_down,      ///< [width, key value rank + rotary width]
  key_value_down_norm, ///< [key value rank]
  key_value_up,        ///< [heads, plain + value width, key value rank], as in files
  out,                 ///< [heads * value width, width]
  out_bias,            ///< [width]
  mlp_norm,            ///< [width]
  gate_up,             ///< [width, 2, hidden]
  down,                ///< [hidden, width]
  router,              ///< [width, experts]
  router_bias,         ///< [experts], added for the choice
  expert_gate_up,      ///< [width, 2, hidden of an expert]
  expert_down,         ///< [hidden of an expert, width]
  shared_gate_up,      ///< [width, 2, hidden of the shared MLP]
  shared_down,         ///< [hidden of the shared MLP, width]
  final_norm,          ///< [width]
  head                 ///< [vocabulary, width]
};

/// @brief One parameter of a model.
struct Parameter {
  Part part;
  std::int64_t layer = 0;
  std::int64_t expert = 0;

  friend auto operator<=>(const Parameter&, const Parameter&) = default;
};

/// @brief A part of a tensor of the files, and its place in a block of a parameter: element (i, j) of the
/// part is element first + i * strides[0] + j * strides[1] of the block.
struct Piece {
  std::string tensor;
  std::vector<std::uint64_t> shape; ///< Of the whole tensor.
  sw::safetensors::BlockOf part;
  std::size_t first = 0;
  std::vector<std::size_t> strides;
};

/// @brief The global shape of a parameter here.
[[nodiscard]] std::vector<std::int64_t> shape_of(const Settings& settings, Part part);

/// @brief The pieces that make up the block [offset, offset + extent) of a parameter.
[[nodiscard]] std::vector<Piece> pieces_of(const Settings& settings, const Parameter& parameter,
                                           std::span<const std::int64_t> offset,
                                           std::span<const std::int64_t> extent);

/// @brief The parameters of a layer, in the order of the forward pass.
[[nodiscard]] std::vector<Parameter> layer_parameters(const Settings& settings, std::int64_t layer);

/// @brief All parameters. A tied head is not one.
[[nodiscard]] std::vector<Parameter> all_parameters(const Settings& settings);

} // namespace pretrained
