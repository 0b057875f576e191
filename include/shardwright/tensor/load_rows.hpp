// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads data row by row and keeps the part of each row that belongs to this rank's block.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The positions of this rank's elements of dimension 1 in a row: according to the layout, or in token order.
template <class Tensor> [[nodiscard]] TokenRuns runs_in_row(const Tensor& tensor) {
  if constexpr (requires { tensor.positions().runs(); })
    return tensor.positions().runs();
  else if constexpr (Tensor::tensor_rank > 1)
    return TokenRuns::one(static_cast<std::size_t>(tensor.local_shape()[1]),
                          static_cast<std::size_t>(tensor.local_offset()[1]));
  else
    return TokenRuns::one(1);
}

/// The position of each place of this rank's sequences, if places are not positions.
template <class Tensor>
[[nodiscard]] const std::int32_t* text_of_rows([[maybe_unused]] const Tensor& tensor) {
  if constexpr (requires { tensor.positions().text(); })
    return tensor.row_order().text;
  else
    return nullptr;
}

} // namespace detail

/// @brief Writes this rank's block of a tensor to host memory, from data that is read row by row.
/// @param like the tensor whose block it is
/// @param to local_size() elements
/// @param read called as read(row, elements) for each row of dimension 0 that this rank needs, in their
/// order: fills the whole row, the product of the other global extents
/// @param first_row offset added to the row indices: for a microbatch, its position in the batch
template <class Tensor, class Read>
void read_rows(const Tensor& like, typename Tensor::value_type* to, Read&& read, std::int64_t first_row = 0) {
  using Element = typename Tensor::value_type;
  static_assert(Tensor::tensor_rank >= 1 && Tensor::tensor_rank <= 3,
                "read_rows: the tensor must have one to three dimensions (merge dimensions)");
  static_assert(
      !Tensor::layout::value.has_partial(),
      "read_rows: the tensor must not be Partial, as every rank's part would count (read into a layout without Partial)");
  static_assert(!detail::has_halos<typename Tensor::layout>,
                "read_rows: the tensor must have no halos (read one without, and redistribute it)");
  const auto& shape = like.shape();
  const auto& local = like.local_shape();
  std::size_t width = 1;
  for (std::size_t d = 1; d < shape.size(); ++d)
    width *= static_cast<std::size_t>(shape[d]);
  std::size_t inner = 1;
  std::size_t inner_local = 1;
  std::size_t inner_offset = 0;
  if constexpr (Tensor::tensor_rank == 3) {
    inner = static_cast<std::size_t>(shape[2]);
    inner_local = static_cast<std::size_t>(local[2]);
    inner_offset = static_cast<std::size_t>(like.local_offset()[2]);
  }
  std::vector<Element> row(width);
  const TokenRuns runs = detail::runs_in_row(like);
  const std::int32_t* text = detail::text_of_rows(like);
  const std::int64_t begin = local[0] == 0 ? 0 : like.local_offset()[0];
  for (std::int64_t i = 0; i < local[0]; ++i) {
    read(first_row + begin + i, std::span<Element>(row));
    for (std::size_t column = 0; column < runs.rows; ++column) {
      const std::size_t place = runs.position(column);
      const std::size_t position = text == nullptr ? place : static_cast<std::size_t>(text[place]);
      to = std::copy_n(row.data() + position * inner + inner_offset, inner_local, to);
    }
    text = text == nullptr ? nullptr : text + shape[1];
  }
}

/// @brief Fills a tensor from data that is read row by row: every rank reads the whole rows of its block, and
/// keeps the part that its layout assigns to it. Ranks that hold copies read the same rows.
///
/// On a device, waits; Uploads with read_rows does not. In a dry run, reads nothing.
/// @param read, first_row as read_rows
template <class Tensor, class Read>
void load_rows([[maybe_unused]] Tensor& tensor, [[maybe_unused]] Read&& read,
               [[maybe_unused]] std::int64_t first_row = 0) {
  if constexpr (counts_only<typename Tensor::target>) {
    return;
  } else if constexpr (Tensor::target::host_accessible) {
    read_rows(tensor, tensor.mutable_data(), read, first_row);
  } else {
    std::vector<typename Tensor::value_type> block(tensor.local_size());
    read_rows(tensor, block.data(), read, first_row);
    set_local_values(tensor, block);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
