// SPDX-License-Identifier: Apache-2.0
//
// A coupled code that manages MPI itself: some of its ranks train, the others simulate. Run it with mpirun.
#include <shardwright/comm/mpi/transport.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <Kokkos_Core.hpp>

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

/// Stands in for a library that knows only MPI.
int ranks_that_another_library_sees(MPI_Comm comm) {
  int one = 1;
  int sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

void simulate(MPI_Comm ranks) { MPI_Barrier(ranks); }

//! [out]
void train(sw::HostCommunicator world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  const MPI_Comm data_parallel = sw::mpi_communicator(mesh.communicator<dp>());
  const int ranks = ranks_that_another_library_sees(data_parallel);
  //! [out]
  std::vector<int> sum(1, 1);
  world.all_reduce_in_place(sum);
  if (sum[0] != ranks)
    throw sw::InvalidArgument("the other library must see all ranks of the world");
  if (world.rank() == 0)
    std::printf("%d ranks train\n", ranks);
}

//! [in]
int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool trains = rank % 2 == 0;
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, rank, &part);
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    if (trains)
      train(sw::world_from(part, {.deadline = std::chrono::minutes(10)}));
    else
      simulate(part);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_free(&part);
  MPI_Finalize();
}
//! [in]
