// SPDX-License-Identifier: Apache-2.0
#include "support/session.hpp"

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstdio>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#if defined(MPICH_VERSION) // it tells these, not a message's communicator, of an error among several messages
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#endif
  Kokkos::initialize();
  const int status = shardwright_test::run_session(argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (status != 0) {
    // The other ranks may wait for this one inside a collective: end them now rather than at a deadline.
    std::fprintf(stderr, "rank %d: tests failed\n", rank);
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, std::min(status, 255));
  }
  Kokkos::finalize();
  MPI_Finalize();
  return status;
}
