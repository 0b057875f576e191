// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of inserted columns on a Reproducible target: parts of the rows that share them, such
/// as heads, join in a binary tree.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <bit>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// One row of columns per call.
template <class Element> struct InsertedColumnsInTree {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> from;
  MatrixSpan<Element> out;
  std::size_t at;
  std::size_t groups;
  std::size_t parts;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const std::size_t size = groups / parts;
    for_chunks<Number>(0, out.columns, [&](auto chunk, std::size_t i) {
      Lanes<Number> nodes[4]; // which wait for their right sibling, of a tree of 8 parts
      std::size_t held = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        Lanes<Number> sum{};
        for (std::size_t g = part * size; g < (part + 1) * size; ++g)
          sum += chunk.load(from.row(row * groups + g) + at + i);
        sum = stored_lanes<Element, lane_count<Number>>(sum);
        for (std::size_t ended = part + 1; ended % 2 == 0; ended /= 2)
          sum = stored_lanes<Element, lane_count<Number>>(nodes[--held] + sum);
        nodes[held++] = sum;
      }
      chunk.store(out.row(row) + i, nodes[0]);
    });
  }
};

} // namespace detail

/// @brief As inserted_columns(), with the sum of `parts` equal parts of the rows that share columns, in a
/// binary tree, each node rounded to the element.
/// @param parts a power of two, at most 8, that divides `groups`
/// @throws InvalidArgument for other shapes, and for columns beyond the row.
template <class Execution, KernelMatrix From, KernelMatrix Out>
void inserted_columns_in_tree(const Execution& execution, const From& from, const Out& out, std::size_t at,
                              std::size_t groups, std::size_t parts) {
  using Element = typename Out::value_type;
  require(at + out.extent(1) <= from.extent(1) && out.extent(0) * groups == from.extent(0) &&
              std::has_single_bit(parts) && parts <= 8 && groups % parts == 0,
          "inserted_columns",
          "there must be a row for each group of rows, and 1, 2, 4 or 8 equal parts of a group.");
  moves("sw::inserted", execution, out, groups * detail::bytes_of(out));
  run_lanes("sw::inserted", execution, out.extent(0),
            detail::InsertedColumnsInTree<Element>{span_of(from), span_of(out), at, groups, parts});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
