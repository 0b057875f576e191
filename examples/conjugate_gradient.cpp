// SPDX-License-Identifier: Apache-2.0
//
// A Poisson equation by conjugate gradients (Hestenes and Stiefel, 1952) without a matrix, compared with the
// same on one block: with ordinary sums up to rounding, with ordered sums bit by bit. Run it directly (four
// threads), with --ranks N, or under mpirun with the same.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace sw = shardwright;
struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};

using WithHalos = sw::Layout<2, sw::Shard<0, rows, sw::Halo<1>>, sw::Shard<1, columns, sw::Halo<1>>>;
using Grid = sw::WithoutHalos<WithHalos>;

/// out = 4 p - the four neighbours of p, which is 0 beyond the ends of the grid.
void laplacian(const sw::LocalView<const double, 2>& p, const sw::LocalView<double, 2>& out) {
  for (std::size_t i = 0; i < out.extent(0); ++i)
    for (std::size_t j = 0; j < out.extent(1); ++j)
      out(i, j) = 4 * p(i + 1, j + 1) - p(i, j + 1) - p(i + 2, j + 1) - p(i + 1, j) - p(i + 1, j + 2);
}

//! [solve]
/// Solves laplacian(x) = b from x = 0; returns the number of steps. `Adding` is Sum, or OrderedSum for the
/// same bits on every mesh.
template <class Adding, class Mesh>
int solve(const Mesh& mesh, const sw::ShardedTensor<Grid, double>& b, sw::ShardedTensor<Grid, double>& x) {
  sw::ShardedTensor<WithHalos, double> p(mesh, b.shape());
  sw::ShardedTensor<Grid, double> q(mesh, b.shape());
  auto r = b.clone();
  sw::fill(x, 0.0);
  sw::redistribute_into(r, p);
  double squares = sw::dot_value<Adding>(r, r);
  const double enough = 1e-28 * squares;
  int step = 0;
  for (; !(squares <= enough) && step < 1000; ++step) { // a NaN is never enough
    laplacian(p.local(), q.mutable_local());
    const double length = squares / sw::dot_value<Adding>(p, q);
    sw::axpy(length, p, x);
    sw::axpy(-length, q, r);
    const double before = squares;
    squares = sw::dot_value<Adding>(r, r);
    sw::axpby(1, r, squares / before, p); // the elements that the ranks own, and then
    sw::refresh_halos(p);
  }
  return step;
}
//! [solve]

/// Solves on the ranks of `world` and on one block; returns whether the solutions agree up to `tolerance`.
template <class Adding> bool compare(sw::HostCommunicator world, const char* sums, double tolerance) {
  const std::array<std::int64_t, 2> shape{47, 31};
  const auto solution = [&](const auto& mesh, int& steps) {
    sw::ShardedTensor<Grid, double> b(mesh, shape);
    sw::ShardedTensor<Grid, double> x(mesh, shape);
    sw::fill_uniform(b, {.seed = 3, .tensor = 0}, -1, 1);
    steps = solve<Adding>(mesh, b, x);
    return sw::redistribute<sw::Layout<2>>(x);
  };
  const int across = world.size() % 2 == 0 ? 2 : 1;
  const sw::DeviceMesh mesh{world, sw::extent<rows>(world.size() / across), sw::extent<columns>(across)};
  const sw::DeviceMesh alone{world.split(world.rank(), 0), sw::extent<rows>(1), sw::extent<columns>(1)};
  int steps = 0;
  int steps_alone = 0;
  const auto shared = solution(mesh, steps);
  const auto whole = solution(alone, steps_alone);
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < whole.local_size(); ++i)
    largest = std::fmax(largest, std::abs(whole.data()[i]));
  std::int64_t different = 0;
  for (std::size_t i = 0; i < whole.local_size(); ++i) {
    const double by = std::abs(shared.data()[i] - whole.data()[i]);
    error = std::fmax(error, by);
    different += by <= tolerance * largest ? 0 : 1; // NaN differs, which fmax ignores
  }
  if (world.rank() == 0)
    std::printf(
        "%s sums: %d steps, %d of one block; values up to %.17g differ by up to %.1e, %lld too much\n", sums,
        steps, steps_alone, largest, error, static_cast<long long>(different));
  return different == 0 && steps < 1000 && steps_alone < 1000;
}

int program(sw::HostCommunicator world) {
  const bool close = compare<sw::Sum>(world, "ordinary", 1e-12);
  const bool same = compare<sw::OrderedSum>(world, "ordered", 0);
  return close && same ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
