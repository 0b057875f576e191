// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Inserts columns between the columns of a matrix, and removes them.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// One row of `out` per call.
template <class Element> struct InsertColumns {
  MatrixSpan<const Element> x;
  MatrixSpan<const Element> columns;
  MatrixSpan<Element> out;
  std::size_t at;
  std::size_t groups; // rows of x that share a row of columns

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Element* from = x.row(row);
    Element* to = out.row(row);
    copy_lanes(from, to, 0, at);
    copy_lanes(columns.row(row / groups), to + at, 0, columns.columns);
    copy_lanes(from + at, to + at + columns.columns, 0, x.columns - at);
  }
};

/// Extracts the original columns: one row per call.
template <class Element> struct RemoveColumns {
  MatrixSpan<const Element> from;
  MatrixSpan<Element> out;
  std::size_t at;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Element* source = from.row(row);
    Element* to = out.row(row);
    copy_lanes(source, to, 0, at);
    copy_lanes(source + at + from.columns - out.columns, to + at, 0, out.columns - at);
  }
};

/// Extracts the inserted columns, summed in order over the rows that share them: one row of `out` per call.
template <class Element> struct InsertedColumns {
  MatrixSpan<const Element> from;
  MatrixSpan<Element> out;
  std::size_t at;
  std::size_t groups;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    using Number = AccumulationElement<Element>;
    for_chunks<Number>(0, out.columns, [&](auto chunk, std::size_t i) {
      Lanes<Number> sum{};
      for (std::size_t group = row * groups; group < (row + 1) * groups; ++group)
        sum += chunk.load(from.row(group) + at + i);
      chunk.store(out.row(row) + i, sum);
    });
  }
};

/// Adds to some columns: one row per call.
template <class Element> struct AddColumns {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> columns;
  MatrixSpan<Element> out;
  std::size_t at;
  Number factor;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Element* from = columns.row(row);
    Element* to = out.row(row) + at;
    const Number times = factor;
    for_chunks<Number>(
        0, columns.columns,
        [=](auto chunk, std::size_t i) {
          chunk.store(to + i, chunk.load(to + i) + chunk.load(from + i) * times);
        },
        from, to);
  }
};

} // namespace detail

/// @brief out[r, :] = x[r, 0..at), columns[r / groups, :], x[r, at..).
/// @param x [rows, n]
/// @param columns [rows / groups, m]
/// @param out [rows, n + m]
/// @throws InvalidArgument for other shapes, and for columns beyond the row.
template <class Execution, KernelMatrix X, KernelMatrix Columns, KernelMatrix Out>
void insert_columns(const Execution& execution, const X& x, const Columns& columns, const Out& out,
                    std::size_t at, std::size_t groups) {
  using Element = typename Out::value_type;
  require(at <= x.extent(1) && x.extent(1) + columns.extent(1) == out.extent(1), "insert_columns",
          "the result must have the columns of both, and the place must be in x.");
  require(columns.extent(0) * groups == x.extent(0) && x.extent(0) == out.extent(0), "insert_columns",
          "there must be a row of columns for each group of rows.");
  moves("sw::insert", execution, x, columns, out);
  run_lanes("sw::insert", execution, out.extent(0),
            detail::InsertColumns<Element>{span_of(x), span_of(columns), span_of(out), at, groups});
}

/// @brief `out` = `from` without those columns: the gradient of x of insert_columns.
/// @param from [rows, n + m]
/// @param out [rows, n]
/// @throws InvalidArgument for other shapes, and for columns beyond the row.
template <class Execution, KernelMatrix From, KernelMatrix Out>
void remove_columns(const Execution& execution, const From& from, const Out& out, std::size_t at) {
  using Element = typename Out::value_type;
  require(from.extent(1) >= out.extent(1) && at <= out.extent(1) && from.extent(0) == out.extent(0),
          "remove_columns", "the result must have fewer columns of the same rows.");
  moves("sw::remove", execution, out, out);
  run_lanes("sw::remove", execution, out.extent(0),
            detail::RemoveColumns<Element>{span_of(from), span_of(out), at});
}

/// @brief `out` = those columns of `from`, summed over the rows that share them: the gradient of columns.
/// @param from [rows, n + m]
/// @param out [rows / groups, m]
/// @throws InvalidArgument for other shapes, and for columns beyond the row.
template <class Execution, KernelMatrix From, KernelMatrix Out>
void inserted_columns(const Execution& execution, const From& from, const Out& out, std::size_t at,
                      std::size_t groups) {
  using Element = typename Out::value_type;
  require(at + out.extent(1) <= from.extent(1) && out.extent(0) * groups == from.extent(0),
          "inserted_columns", "there must be a row for each group of rows.");
  moves("sw::inserted", execution, out, groups * detail::bytes_of(out));
  run_lanes("sw::inserted", execution, out.extent(0),
            detail::InsertedColumns<Element>{span_of(from), span_of(out), at, groups});
}

/// @brief out[r, at + i] += factor columns[r, i].
/// @param columns [rows, m]
/// @param out [rows, n], n at least at + m
/// @throws InvalidArgument for other shapes, and for columns beyond the row.
template <class Execution, KernelMatrix Columns, KernelMatrix Out>
void add_columns(const Execution& execution, const Columns& columns, const Out& out, std::size_t at,
                 double factor) {
  using Element = typename Out::value_type;
  require(at + columns.extent(1) <= out.extent(1) && columns.extent(0) == out.extent(0), "add_columns",
          "the columns must be within those of the result, of the same rows.");
  moves("sw::add_columns", execution, columns, 2 * columns.size() * sizeof(Element));
  run_lanes("sw::add_columns", execution, out.extent(0),
            detail::AddColumns<Element>{span_of(columns), span_of(out), at,
                                        static_cast<AccumulationElement<Element>>(factor)});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
