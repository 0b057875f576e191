// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Raw gradients of embeddings, positions and gains of norms in FixedPoint, as reproducible training
/// sums them.

#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
#include <shardwright/tensor/kernels/positions.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

struct RowOfId {
  const std::int32_t* ids;
  std::int64_t first_id;
  std::size_t rows;
  SHARDWRIGHT_FUNCTION std::size_t operator()(std::size_t i) const {
    return block_row(ids[i], first_id, rows);
  }
};
struct RowOfPosition {
  RowPositions positions;
  std::size_t rows; // of a sequence
  SHARDWRIGHT_FUNCTION std::size_t operator()(std::size_t i) const { return positions.of(i % rows); }
};

/// The terms of a norm's gain, dy (x - mean) inverse.
template <class Element, bool centred> struct GainTerms {
  using Number = AccumulationElement<Element>;
  Norm<Element> norm;

  template <class Use> SHARDWRIGHT_FUNCTION void of_row(std::size_t first, const Use& use) const {
    const std::size_t i = first / norm.x.columns;
    const Element* in = norm.x.row(i);
    const Element* from = norm.dy.row(i);
    const Number s = norm.inverse.data[i];
    const Number average = centred ? norm.mean.data[i] : Number(0);
    use(
        [=](auto chunk, std::size_t c) {
          Lanes<Number> value = chunk.load(in + c);
          const Lanes<Number> slope = chunk.load(from + c);
          if constexpr (centred)
            value = value - average;
          return slope * value * s;
        },
        in, from);
  }
  [[nodiscard]] std::size_t bytes(std::size_t, std::size_t) const {
    return bytes_of(norm.x) + bytes_of(norm.dy) + bytes_of(norm.inverse) + bytes_of(norm.mean);
  }
};

} // namespace detail

/// @brief d_table[ids[t] - first_id] (+)= d_out[t], as embedding_backward of floats.
/// @param d_out  contiguous [tokens, width], float or bfloat16
/// @param fault  as that of column_sums
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Ids, KernelMatrix DOut, KernelMatrix DTable>
void embedding_backward(const Execution& execution, const Ids& ids, const DOut& d_out, std::int64_t first_id,
                        const DTable& d_table, bool add, bool* fault) {
  require(ids.extent(0) == d_out.extent(0) && d_table.extent(1) == d_out.extent(1), "embedding_backward",
          "ids and gradient must have the same number of tokens, and the gradient the table's width.");
  const auto from = flat_span_of(d_out, "embedding_backward");
  detail::run_add_terms("sw::d_embedding", execution, elements_as_terms(from.data), d_out.extent(0),
                        detail::RowOfId{ids.data(), first_id, d_table.extent(0)}, span_of(d_table), add,
                        fault);
}

/// @brief d_table[position of the row] (+)= dy[s, row] of all sequences, as add_positions_backward of floats.
/// @param dy     contiguous [sequences * rows, width], float or bfloat16
/// @param fault  as that of column_sums
/// @throws InvalidArgument for other shapes, and for positions beyond the table.
template <class Execution, KernelMatrix DY, KernelMatrix DTable>
void add_positions_backward(const Execution& execution, const DY& dy, std::size_t rows,
                            const RowPositions& positions, const DTable& d_table, bool add, bool* fault) {
  const auto from = flat_span_of(dy, "add_positions_backward");
  require(dy.extent(1) == d_table.extent(1) && (rows == 0 || dy.extent(0) % rows == 0),
          "add_positions_backward",
          "the gradient must be [sequences * rows, width] for a table [positions, width].");
  detail::require_positions("add_positions_backward", positions, rows, d_table.extent(0));
  detail::run_add_terms("sw::d_positions", execution, elements_as_terms(from.data), dy.extent(0),
                        detail::RowOfPosition{positions, rows}, span_of(d_table), add, fault);
}

/// @brief out (+)= the gradient of a norm's gain, from the arguments of norm_backward(), before that
/// overwrites dy.
/// @param out    [width]
/// @param fault  as that of column_sums
template <bool centred, class Execution, class Element>
void norm_gain_sums(const Execution& execution, const Norm<Element>& norm, FixedPoint* out, bool add,
                    bool* fault) {
  const std::size_t columns = norm.x.columns;
  detail::run_add_terms(centred ? "sw::d_layer_norm" : "sw::d_rms_norm", execution,
                        detail::GainTerms<Element, centred>{norm}, norm.x.rows, detail::OneRow{},
                        {out, 1, columns, columns}, add, fault);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
