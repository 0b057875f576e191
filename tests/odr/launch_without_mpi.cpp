// SPDX-License-Identifier: Apache-2.0
// Part of a program whose other units are compiled with MPI; this one is compiled without it.
#undef SHARDWRIGHT_COMPILED
#undef SHARDWRIGHT_WITH_MPI
#include <shardwright/launch.hpp>

using Runner = int (*)(const shardwright::LaunchOptions&,
                       const std::function<int(shardwright::HostCommunicator)>&);

Runner runner_without_mpi();
Runner runner_without_mpi() {
  return &shardwright::detail::run_ranks<shardwright::HostCommunicator, shardwright::detail::with_mpi>;
}
