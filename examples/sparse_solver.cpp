// SPDX-License-Identifier: Apache-2.0
//
// A sparse linear system by conjugate gradients: a Poisson equation on a cube, or a matrix in Matrix
// Market's format, symmetric and positive definite: sparse_solver [ranks] [--matrix FILE]. Run it directly
// (four threads), with a number of ranks, or under mpirun with that number.
#include "sparse/conjugate_gradient.hpp"

#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/matrix_market.hpp>
#include <shardwright/launch.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace sw = shardwright;

struct Options {
  int ranks = 4;
  std::string matrix; ///< The name of its file, or nothing: the Poisson equation.
};

int program(sw::HostCommunicator world, const Options& options) {
  //! [matrix]
  const sw::DeviceMesh mesh{world, sw::extent<sparse::rows>(world.size())};
  const auto make = [&] {
    if (!options.matrix.empty())
      return sw::read_matrix_market<sparse::Matrix>(mesh, options.matrix);
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
  return residual <= 1e-12 ? 0 : 1;
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  Options options;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--matrix" && i + 1 < argc)
      options.matrix = argv[++i];
    else
      options.ranks = std::atoi(argv[i]);
  try {
    return sw::checked_output("sparse_solver",
                              sw::launch({.ranks = options.ranks}, [&](sw::HostCommunicator world) {
                                return program(std::move(world), options);
                              }));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
