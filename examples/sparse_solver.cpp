// SPDX-License-Identifier: Apache-2.0
//
// A sparse linear system by conjugate gradients: a Poisson equation on a cube, or a matrix in Matrix
// Market's format, symmetric and positive definite: sparse_solver [--matrix FILE]. Run it directly (four
// threads), with --ranks N, or under mpirun with the same.
#include "sparse/conjugate_gradient.hpp"

#include <shardwright/io/matrix_market.hpp>
#include <shardwright/run.hpp>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace sw = shardwright;

int program(sw::HostCommunicator world, std::span<const std::string_view> arguments) {
  if (!arguments.empty() && (arguments.size() != 2 || arguments[0] != "--matrix"))
    throw sw::InvalidArgument(
        "sparse_solver: the arguments must be --ranks N and --matrix FILE (leave --matrix out for a Poisson equation)");
  const std::string file(arguments.empty() ? "" : arguments[1]); // the Poisson equation without one
  //! [matrix]
  const sw::DeviceMesh mesh{world, sw::extent<sparse::rows>(world.size())};
  const auto make = [&] {
    if (!file.empty())
      return sw::read_matrix_market<sparse::Matrix>(mesh, file);
    constexpr std::int64_t side = 20, points = side * side * side;
    // Any rank may give any entry; here each gives those of its rows.
    return sparse::Matrix(mesh, {points, points},
                          sparse::poisson(side, sparse::Matrix::row_block(mesh, points)));
  };
  const sparse::Matrix a = make();
  //! [matrix]
  if (a.shape()[0] != a.shape()[1])
    throw sw::InvalidArgument("sparse_solver: the matrix must be square (name another file)");
  sparse::Vector ones(mesh, {a.shape()[0]}), b(mesh, {a.shape()[0]}), x(mesh, {a.shape()[0]});
  sw::fill(ones, 1.0);
  sw::spmv_into(b, a, ones);
  const auto [steps, residual] = sparse::solve(a, b, x, 1e-12, 10000);
  sw::axpy(-1, ones, x);
  const double error = sw::norm_max_value(x);
  if (world.rank() == 0)
    std::printf("%lld rows: %d steps reduce the residual to %.1e; the largest error is %.1e\n",
                static_cast<long long>(a.shape()[0]), steps, residual, error);
  if (!(residual <= 1e-12)) // nor not a number
    throw sw::InvalidArgument(
        "sparse_solver: the matrix must be symmetric and positive definite, but the residual does not fall to 1e-12 (name another file)");
  return 0;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
