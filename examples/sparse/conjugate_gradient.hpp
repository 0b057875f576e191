// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Preconditioned conjugate gradients over a sparse matrix, and the matrix of a Poisson equation.

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/norms.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/sparse/csr_matrix.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sparse {

namespace sw = shardwright;

//! [layout]
struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
using Split = sw::Layout<1, sw::Shard<0, rows>>; // of vectors, and of the rows of a matrix
using Matrix = sw::CsrMatrix<Split>;
using Vector = sw::ShardedTensor<Split, double>;
//! [layout]

//! [poisson]
/// The rows [first, first + count) of the 7-point Laplacian on a cube of points, 0 beyond its sides.
inline std::vector<sw::MatrixEntry<double>> poisson(std::int64_t side, sw::DimensionBlock block) {
  std::vector<sw::MatrixEntry<double>> entries;
  entries.reserve(static_cast<std::size_t>(7 * block.size));
  for (std::int64_t row = block.offset; row < block.offset + block.size; ++row) {
    entries.push_back({row, row, 6});
    std::int64_t stride = 1;
    for (int dimension = 0; dimension < 3; ++dimension, stride *= side) {
      const std::int64_t at = row / stride % side;
      if (at > 0)
        entries.push_back({row, row - stride, -1});
      if (at + 1 < side)
        entries.push_back({row, row + stride, -1});
    }
  }
  return entries;
}
//! [poisson]

struct Solution {
  int steps = 0;
  double residual =
      0; ///< sqrt(r z) relative to its first value; not a number if A is found not to be positive.
};

//! [solve]
/// Solves A x = b from x = 0 by conjugate gradients (Hestenes and Stiefel, 1952) with a Jacobi
/// preconditioner, until sqrt(r z) has fallen by `factor`.
inline Solution solve(const Matrix& a, const Vector& b, Vector& x, double factor, int most_steps) {
  const auto inverse = 1 / sw::diagonal(a);
  sw::fill(x, 0.0);
  auto r = b.clone();
  auto p = inverse * r;
  auto q = b.clone();
  const double first = sw::dot_value(r, p);
  double product = first;
  int step = 0;
  for (; step < most_steps && product > factor * factor * first; ++step) {
    sw::spmv_into(q, a, p); // one message to each neighbour
    const double length = product / sw::dot_value(p, q);
    sw::axpy(length, p, x);
    sw::axpy(-length, q, r);
    auto& z = q; // which has been read: memory that is in the cache
    sw::multiply.into(z, inverse, r);
    const double before = product;
    product = sw::dot_value(r, z);
    sw::axpby(1, z, product / before, p);
  }
  return {step, first == 0 ? 0 : std::sqrt(product / first)};
}
//! [solve]

} // namespace sparse
