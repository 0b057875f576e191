// SPDX-License-Identifier: Apache-2.0
//
// The largest eigenvalue of a dense symmetric matrix by power iteration (von Mises), on a mesh of matrix
// blocks: distributed tensors without any machine learning. Run it directly (four threads), or with mpirun -n
// 4.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string_view>

namespace sw = shardwright;

//! [axes]
// Axes of the program: the matrix is cut into blocks of rows and columns.
struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};

using Matrix = sw::Layout<2, sw::Shard<0, rows>, sw::Shard<1, columns>>;
using Vector = sw::Layout<1, sw::Shard<0, columns>>; // the operand of a product with Matrix
//! [axes]

/// A_ij = min(i, j) + 1: the inverse of the second difference with one free end, whose eigenvalues are known.
void fill_matrix(sw::ShardedTensor<Matrix, double>& matrix) {
  const auto block = matrix.mutable_local();
  const auto offset = matrix.local_offset();
  for (std::size_t i = 0; i < block.extent(0); ++i)
    for (std::size_t j = 0; j < block.extent(1); ++j)
      block(i, j) = static_cast<double>(
          std::min(offset[0] + static_cast<std::int64_t>(i), offset[1] + static_cast<std::int64_t>(j)) + 1);
}

int program(sw::HostCommunicator world) {
  const std::int64_t n = 601; // not a multiple of the mesh: the last blocks are smaller
  int row_blocks = static_cast<int>(std::sqrt(world.size()));
  while (world.size() % row_blocks != 0)
    --row_blocks;
  const sw::DeviceMesh mesh{world, sw::extent<rows>(row_blocks),
                            sw::extent<columns>(world.size() / row_blocks)};

  sw::ShardedTensor<Matrix, double> a(mesh, {n, n});
  fill_matrix(a);
  sw::ShardedTensor<Vector, double> start(mesh, {n});
  sw::fill_uniform(start, {.seed = 7, .tensor = 0}, 0.5, 1.5);

  auto v = start.share();
  double eigenvalue = 0.0;
  double residual = 1.0;
  //! [iteration]
  for (int step = 1; step <= 30 && residual > 1e-12; ++step) {
    v = sw::scale(v, 1.0 / sw::item(sw::norm(v))).share();
    // Layout<1, Shard<0, rows>, Partial<Sum, columns>>: every block of columns holds a part of the sum. The
    // transition to Vector completes it and moves it to where the next product needs it.
    const auto product = sw::redistribute<Vector>(sw::matmul(a, v));
    eigenvalue = sw::item(sw::redistribute<sw::Layout<0>>(sw::dot(v, product)));
    residual = sw::item(sw::norm(sw::add(product, sw::scale(v, -eigenvalue)))) / eigenvalue;
    if (world.rank() == 0)
      std::printf("step %2d  eigenvalue %.12f  residual %.2e\n", step, eigenvalue, residual);
    v = product.share();
  }
  //! [iteration]

  const double sine = std::sin(std::numbers::pi / static_cast<double>(4 * n + 2));
  const double wanted = 0.25 / (sine * sine);
  const double error = std::abs(eigenvalue / wanted - 1.0);
  if (world.rank() == 0)
    std::printf("on %d x %d blocks; known eigenvalue %.12f, relative error %.2e\n", mesh.extent<rows>(),
                mesh.extent<columns>(), wanted, error);
  return error < 1e-11 && residual < 1e-9 ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
