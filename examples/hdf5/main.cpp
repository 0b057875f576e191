// SPDX-License-Identifier: Apache-2.0
//
// Writes a matrix on a grid of ranks to a file of parallel HDF5, and reads it split otherwise:
// beside_hdf5 FILE. Run it directly, or with mpirun. The program initialises MPI itself, without threads.
#include "hdf5/adapter.hpp"

#include <shardwright/shardwright.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace sw = shardwright;

struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};

//! [copy]
int copy(const sw::HostCommunicator& world, const std::string& path) {
  const int across = world.size() % 2 == 0 ? 2 : 1;
  const sw::DeviceMesh mesh{world, sw::extent<rows>(world.size() / across), sw::extent<columns>(across)};
  using Grid = sw::Layout<2, sw::Shard<0, rows>, sw::Shard<1, columns>>;
  using Columns = sw::Layout<2, sw::Shard<1, columns>>; // copies along rows
  sw::ShardedTensor<Grid, double> matrix(mesh, {13, 7});
  sw::fill_uniform(matrix, {.seed = 1, .tensor = 0}, -1, 1);
  const auto copies = sw::redistribute<Columns>(matrix);
  {
    const auto file = hdf5::open_file(world, path, true);
    hdf5::write(file, "matrix", mesh, matrix);
    hdf5::write(file, "copies", mesh, copies);
  }
  sw::ShardedTensor<Columns, double> first(mesh, {13, 7}), second(mesh, {13, 7});
  {
    const auto file = hdf5::open_file(world, path, false);
    hdf5::read(file, "matrix", first);
    hdf5::read(file, "copies", second);
  }
  //! [copy]
  sw::axpy(-1, copies, first);
  sw::axpy(-1, copies, second);
  const double difference = sw::norm_max_value(first) + sw::norm_max_value(second);
  if (world.rank() == 0)
    std::printf("%d ranks wrote and read 13 x 7 elements: the largest difference is %g\n", world.size(),
                difference);
  return difference == 0 ? 0 : 1;
}

//! [main]
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv); // no threads: only this one calls the library
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    const int code = copy(sw::mpi_world(), argc > 1 ? argv[1] : "matrix.h5");
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
//! [main]
