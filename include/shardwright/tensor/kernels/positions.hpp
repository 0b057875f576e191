// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rows of a table added by the position of each token, and the table's gradient.

#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Positions of a block's rows of a sequence, which start with row `first` of the whole sequence.
struct RowPositions {
  std::size_t first = 0;
  RowOrder order{};

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t of(std::size_t row) const {
    return order.position(first + row);
  }
  /// @brief All positions of the first `rows` rows are smaller.
  [[nodiscard]] constexpr std::size_t end(std::size_t rows) const {
    const std::size_t last = first + rows;
    return order.is_natural() ? last : (last + order.sequence - 1) / order.sequence * order.sequence;
  }
};

namespace detail {

/// One token per call.
template <class Element> struct AddPositions {
  using Number = AccumulationElement<Element>;
  const Element* x; // [sequences, rows, columns]
  MatrixSpan<const Element> table;
  Element* out;
  std::size_t rows;
  RowPositions positions;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const Element* in = x + token * table.columns;
    const Element* added = table.row(positions.of(token % rows));
    Element* to = out + token * table.columns;
    for_chunks<Number>(
        0, table.columns,
        [in, added, to](auto chunk, std::size_t c) {
          chunk.store(to + c, chunk.load(in + c) + chunk.load(added + c));
        },
        in, added, to);
  }
};

/// One position per call: the sum over the sequences, in their order.
template <class Element, class Main> struct SumOfPositions {
  const Element* dy; // [sequences, rows, columns]
  MatrixSpan<Main> d_table;
  std::size_t sequences;
  std::size_t rows;
  RowPositions positions;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    Main* to = d_table.row(positions.of(row));
    const std::size_t columns = d_table.columns;
    for (std::size_t s = 0; s < sequences; ++s)
      add_lanes(dy + (s * rows + row) * columns, to, 0, columns);
  }
};

inline void require_positions(const char* operation, const RowPositions& positions, std::size_t rows,
                              std::size_t table) {
  require(positions.end(rows) <= table, operation,
          "the table must have a row for each position (make it longer).");
}

} // namespace detail

/// @brief out[s, row] = x[s, row] + table[position of the row]; `out` may be `x`.
/// @param x      contiguous [sequences * rows, width]
/// @param table  [positions, width]
/// @param rows   of a sequence in this block
/// @throws InvalidArgument for other shapes, and for positions beyond the table.
template <class Execution, KernelMatrix X, KernelMatrix Table, KernelMatrix Out>
void add_positions(const Execution& execution, const X& x, const Table& table, std::size_t rows,
                   const RowPositions& positions, const Out& out) {
  using Element = typename Out::value_type;
  const auto from = flat_span_of(x, "add_positions");
  const auto to = flat_span_of(out, "add_positions");
  require(x.extent(1) == table.extent(1) && from.size == to.size && (rows == 0 || x.extent(0) % rows == 0),
          "add_positions",
          "input and result must be [sequences * rows, width] for a table [positions, width].");
  detail::require_positions("add_positions", positions, rows, table.extent(0));
  moves("sw::positions", execution, from, to, rows * x.extent(1) * sizeof(Element));
  run_lanes("sw::positions", execution, x.extent(0),
            detail::AddPositions<Element>{from.data, span_of(table), to.data, rows, positions});
}

/// @brief d_table[position of the row] (+)= sum over the sequences of dy[s, row], in their order; rows of
/// other positions are unchanged, or become zero.
/// @param dy       contiguous [sequences * rows, width]; may be narrower than the sums
/// @param d_table  contiguous [positions, width]
/// @param add      false sets d_table to zero first
/// @throws InvalidArgument for other shapes, and for positions beyond the table.
template <class Execution, KernelMatrix DY, KernelMatrix DTable>
void add_positions_backward(const Execution& execution, const DY& dy, std::size_t rows,
                            const RowPositions& positions, const DTable& d_table, bool add = false) {
  using Main = typename DTable::value_type;
  using Element = typename DY::non_const_value_type;
  const auto from = flat_span_of(dy, "add_positions_backward");
  require(dy.extent(1) == d_table.extent(1) && (rows == 0 || dy.extent(0) % rows == 0),
          "add_positions_backward",
          "the gradient must be [sequences * rows, width] for a table [positions, width].");
  detail::require_positions("add_positions_backward", positions, rows, d_table.extent(0));
  if (!add)
    fill(execution, d_table, Main(0));
  moves("sw::d_positions", execution, from, 2 * rows * dy.extent(1) * sizeof(Main));
  if (rows > 0)
    run_lanes("sw::d_positions", execution, rows,
              detail::SumOfPositions<Element, Main>{from.data, span_of(d_table), dy.extent(0) / rows, rows,
                                                    positions});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
