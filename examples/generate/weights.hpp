// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parameters of a published model: their shapes here, and the tensors of its files that hold
/// them.

#include "settings.hpp"

#include <shardwright/core/narrow_float.hpp>
#include <shardwright/io/safetensors/files.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace generate {

/// @brief The kinds of parameters; a matrix is [in, out...] here and [out, in] in files.
enum class Part {
  embedding,      ///< [vocabulary, width]
  attention_norm, ///< [width]
  qkv,            ///< [width, kv_heads, (queries per kv head + 2) * head width]
  qkv_bias,       ///< [kv_heads, (queries per kv head + 2) * head width]
  query_norm,     ///< [head width]
  key_norm,       ///< [head width]
  out,            ///< [heads * head width, width]
  out_bias,       ///< [width]
  mlp_norm,       ///< [width]
  gate_up,        ///< [width, 2, hidden], of one expert where there are experts
  down,           ///< [hidden, width], likewise
  router,         ///< [width, experts]
  final_norm,     ///< [width]
  head            ///< [vocabulary, width]
};

/// @brief One parameter of a model.
struct Parameter {
  Part part;
  std::int64_t layer = 0;
  std::int64_t expert = 0;
};

/// @brief A part of a tensor of the files, and where a block of a parameter has it: element (i, j) of the
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

/// @brief The pieces that make up a block of a parameter, [offset, offset + extent).
[[nodiscard]] std::vector<Piece> pieces_of(const Settings& settings, const Parameter& parameter,
                                           std::span<const std::int64_t> offset,
                                           std::span<const std::int64_t> extent);

/// @brief The parameters of a layer, in the order of the forward pass.
[[nodiscard]] std::vector<Parameter> layer_parameters(const Settings& settings, std::int64_t layer);

/// @brief All parameters. A tied head is none.
[[nodiscard]] std::vector<Parameter> all_parameters(const Settings& settings);

/// @brief Checks that the files hold the tensors of a model and no others, of its shapes and of BF16, F16 or
/// F32.
/// @throws sw::DataError that names every tensor that is missing, surplus or otherwise.
void check_tensors(const Settings& settings, const sw::safetensors::Files& files);

/// @brief Reads a block of a parameter, converted to its element, and of the files nothing else.
/// @param block row-major, of `extent`
template <class Element>
void read_block(const sw::safetensors::Files& files, const Settings& settings, const Parameter& parameter,
                std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                std::span<Element> block);

/// @brief Writes a directory that other programs load: config.json and the tensors, F32.
/// @param values gives a whole parameter, row-major; called for each in turn
/// @throws sw::DataError where a file cannot be written.
void write_model(const std::filesystem::path& directory, const Settings& settings,
                 const std::function<std::vector<float>(const Parameter&)>& values);

namespace detail {

/// Elements of a file, widened.
void widen(std::span<const std::byte> from, sw::safetensors::Dtype dtype, std::span<float> to);

/// Reads a piece by some rows at a time, and calls `place(row, rows)` with them.
void read_piece(
    const sw::safetensors::Files& files, const Piece& piece,
    const std::function<void(std::size_t first_row, std::size_t rows, std::span<const float>)>& place);

} // namespace detail

template <class Element>
void read_block(const sw::safetensors::Files& files, const Settings& settings, const Parameter& parameter,
                std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                std::span<Element> block) {
  for (const Piece& piece : pieces_of(settings, parameter, offset, extent)) {
    const bool matrix = piece.strides.size() == 2;
    const std::size_t row_stride = piece.strides[0], column_stride = matrix ? piece.strides[1] : 1;
    detail::read_piece(files, piece,
                       [&](std::size_t first_row, std::size_t rows, std::span<const float> values) {
                         const std::size_t columns = values.size() / rows;
                         // The rows that come together stay in the cache, whichever way the block is laid
                         // out.
                         for (std::size_t column = 0; column < columns; ++column)
                           for (std::size_t row = 0; row < rows; ++row)
                             block[piece.first + (first_row + row) * row_stride + column * column_stride] =
                                 static_cast<Element>(values[row * columns + column]);
                       });
  }
}

} // namespace generate
