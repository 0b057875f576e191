// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Kernels over lists of indices: elements gathered, sums added, rows of a sparse matrix.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief to[i] = from[at[i]].
template <class Element> struct GatherIndices {
  const Element* from;
  const std::int32_t* at;
  Element* to;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const { to[i] = from[at[i]]; }
};

/// @brief Adds to to[at[i]] the elements from[places[k]], k in [begin[i], begin[i + 1]), one after another.
template <class Element> struct AddIndices {
  const Element* from;
  const std::int32_t* at;
  const std::int32_t* begin;
  const std::int32_t* places;
  Element* to;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    auto sum = static_cast<AccumulationElement<Element>>(to[at[i]]);
    for (std::int32_t k = begin[i]; k < begin[i + 1]; ++k)
      sum += static_cast<AccumulationElement<Element>>(from[places[k]]);
    to[at[i]] = static_cast<Element>(sum);
  }
};

/// @brief y[row] = sum of values * x over a row's entries in their order, from row `first` on: of all rows,
/// or of those that `rows` lists.
template <class Element, bool listed> struct RowsTimesVector {
  const std::int32_t* rows;
  const std::int32_t* begin;
  const std::int32_t* columns;
  const Element* values;
  const Element* x;
  Element* y;
  std::size_t first = 0;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const std::size_t at = first + i;
    Element sum(0);
    for (std::int32_t k = begin[at]; k < begin[at + 1]; ++k)
      sum += values[k] * x[columns[k]];
    if constexpr (listed)
      y[rows[at]] = sum;
    else
      y[at] = sum;
  }
};

/// @brief The same for listed rows, whose columns from `owned` on are in `borrowed`.
template <class Element> struct ListedRowsTimesVector {
  const std::int32_t* rows;
  const std::int32_t* begin;
  const std::int32_t* columns;
  const Element* values;
  const Element* x;
  const Element* borrowed;
  std::int32_t owned;
  Element* y;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    Element sum(0);
    for (std::int32_t k = begin[i]; k < begin[i + 1]; ++k) {
      const std::int32_t column = columns[k];
      sum += values[k] * (column < owned ? x[column] : borrowed[column - owned]);
    }
    y[rows[i]] = sum;
  }
};

/// @brief d[row] = the entry of a row in the column with the row's number, if there is one. `rows` may be
/// null: all rows.
template <class Element> struct DiagonalOfRows {
  const std::int32_t* rows;
  const std::int32_t* begin;
  const std::int32_t* columns;
  const Element* values;
  Element* d;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const std::int32_t row = rows == nullptr ? static_cast<std::int32_t>(i) : rows[i];
    for (std::int32_t k = begin[i]; k < begin[i + 1]; ++k)
      if (columns[k] == row)
        d[row] = values[k];
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
