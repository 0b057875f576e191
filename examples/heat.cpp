// SPDX-License-Identifier: Apache-2.0
//
// The heat equation on a plate by a five-point stencil on blocks with halos, compared bit by bit with the
// same on one block. Run it directly (four threads), with --ranks N, or under mpirun with the same.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace sw = shardwright;

//! [layout]
struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};

// Every block carries the row and the column of its neighbours next to it.
using Grid = sw::Layout<2, sw::Shard<0, rows, sw::Halo<1>>, sw::Shard<1, columns, sw::Halo<1>>>;
//! [layout]
using Plate = sw::LocalView<double, 2>;

//! [sweep]
/// One explicit step for all points of a block inside its halo.
void sweep(const sw::LocalView<const double, 2>& u, const Plate& next) {
  for (std::size_t i = 1; i + 1 < u.extent(0); ++i)
    for (std::size_t j = 1; j + 1 < u.extent(1); ++j)
      next(i, j) = u(i, j) + 0.2 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j));
}
//! [sweep]

/// The rim beyond the first row is hot.
void heat_edge(const Plate& plate) {
  for (std::size_t j = 0; j < plate.extent(1); ++j)
    plate(0, j) = 1;
}

int program(sw::HostCommunicator world) {
  constexpr std::int64_t height = 50;
  constexpr std::int64_t width = 70;
  constexpr int steps = 200;
  const int across = world.size() % 2 == 0 ? 2 : 1;
  //! [steps]
  const sw::DeviceMesh mesh{world, sw::extent<rows>(world.size() / across), sw::extent<columns>(across)};
  sw::ShardedTensor<Grid, double> u(mesh, {height, width});
  sw::ShardedTensor<Grid, double> next(mesh, {height, width});
  for (auto* plate : {&u, &next}) {
    sw::fill(*plate, 0.0);
    if (plate->local_offset()[0] == 0) // beyond the ends of the grid halos are boundary values
      heat_edge(plate->mutable_local());
  }
  for (int step = 0; step < steps; ++step) {
    sw::refresh_halos(u);
    sweep(u.local(), next.mutable_local());
    std::swap(u, next);
  }
  //! [steps]

  std::vector<double> first((height + 2) * (width + 2), 0.0);
  std::vector<double> second = first;
  for (auto* plate : {&first, &second})
    heat_edge(Plate(plate->data(), height + 2, width + 2));
  for (int step = 0; step < steps; ++step) {
    sweep(Plate(first.data(), height + 2, width + 2), Plate(second.data(), height + 2, width + 2));
    std::swap(first, second);
  }
  //! [total]
  const double heat = sw::sum_value<sw::OrderedSum>(u); // the same bits on any number of ranks
  //! [total]
  const auto whole = sw::redistribute<sw::Layout<2>>(u);
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < height * width; ++i)
    if (whole.data()[i] != first[static_cast<std::size_t>((i / width + 1) * (width + 2) + i % width + 1)])
      ++different;
  if (world.rank() == 0)
    std::printf("%d steps on %d x %d blocks: heat %.17g, %lld values differ from one block\n", steps,
                mesh.extent<rows>(), mesh.extent<columns>(), heat, static_cast<long long>(different));
  return different == 0 && heat == sw::sum_value<sw::OrderedSum>(whole) ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
