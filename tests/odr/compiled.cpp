// SPDX-License-Identifier: Apache-2.0
// A unit that only declares launch() beside one that compiles it: the function that runs the ranks is one
// entity in both.
#if !defined(SHARDWRIGHT_COMPILED)
#error "shardwright::compiled must define SHARDWRIGHT_COMPILED"
#endif
#include <shardwright/launch.hpp>

#include <cstdio>

using Runner = int (*)(const shardwright::LaunchOptions&,
                       const std::function<int(shardwright::HostCommunicator)>&);
Runner header_only_runner();
int header_only_ranks();
Runner runner_without_mpi();

int main() {
  int ranks = 0;
  shardwright::launch({.ranks = 3}, [&](shardwright::HostCommunicator world) {
    if (world.rank() == 0)
      ranks = world.size();
  });
  const bool same =
      &shardwright::detail::run_ranks<shardwright::HostCommunicator, shardwright::detail::with_mpi> ==
      header_only_runner();
  std::printf("%s, %d ranks, %d ranks\n", same ? "one runner" : "two runners of the same name", ranks,
              header_only_ranks());
  // A unit without MPI beside units with it: under one name, either would get the other's function.
  const bool apart = !shardwright::detail::with_mpi || runner_without_mpi() != header_only_runner();
  std::printf("%s\n",
              apart ? "units with and without MPI keep apart" : "units with and without MPI share a runner");
  return same && apart && ranks == 3 && header_only_ranks() == 3 ? 0 : 1;
}
