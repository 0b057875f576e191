// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads sparse matrices in Matrix Market's coordinate format.

#include <shardwright/io/matrix_market_file.hpp>
#include <shardwright/tensor/sparse/csr_matrix.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The matrix in a Matrix Market file (coordinate; real, integer or pattern; general, symmetric or
/// skew-symmetric), such as `read_matrix_market<CsrMatrix<Rows>>(mesh, "poisson.mtx")`. Entries of a pattern
/// are 1.
///
/// Collective. Every rank reads the file and keeps the entries of its rows, so that no rank holds more; cost:
/// that, and CsrMatrix's. Values too small for a double are 0. Format: Boisvert, Pozo and Remington, The
/// Matrix Market Exchange Formats: Initial Design, NISTIR 5935, 1996.
/// @throws DataError naming the file and the line, for a file that cannot be read, is cut short, breaks the
/// format or a limit, or holds a value that an element cannot; the errors of CsrMatrix.
template <AnyCsrMatrix Matrix, class... Axes>
[[nodiscard]] Matrix read_matrix_market(const DeviceMesh<Axes...>& mesh, const std::filesystem::path& path,
                                        const MatrixMarketLimits& limits = {},
                                        SourceLocation where = SourceLocation::current()) {
  using Element = typename Matrix::value_type;
  constexpr double largest = std::numeric_limits<Element>::max();
  detail::MatrixMarketFile file(path, limits);
  const DimensionBlock rows = Matrix::row_block(mesh, file.shape()[0], where);
  std::vector<MatrixEntry<Element>> own;
  for (MatrixEntry<double> entry; file.next(entry);) {
    if (std::abs(entry.value) > largest) // on every rank, whoever has the row
      file.reject("the value must fit a float (give the matrix double elements, or scale it)");
    if (entry.row >= rows.offset && entry.row < rows.offset + rows.size)
      own.push_back({entry.row, entry.column, static_cast<Element>(entry.value)});
  }
  return Matrix(mesh, file.shape(), own, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
