// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The product of two matrices, by definition.

#include <cstddef>
#include <vector>

namespace shardwright_test {

/// @brief op(a) op(b) of row-major matrices; `inner` is the contracted extent.
[[nodiscard]] inline std::vector<double> product(const std::vector<double>& a, bool a_turned,
                                                 const std::vector<double>& b, bool b_turned,
                                                 std::size_t inner) {
  const std::size_t rows = a.size() / inner, columns = b.size() / inner;
  std::vector<double> out(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t k = 0; k < inner; ++k)
        out[r * columns + c] +=
            a[a_turned ? k * rows + r : r * inner + k] * b[b_turned ? c * inner + k : k * columns + c];
  return out;
}

} // namespace shardwright_test
