// SPDX-License-Identifier: Apache-2.0
// Part of a program that links shardwright::compiled, yet compiles the transports itself.
#undef SHARDWRIGHT_COMPILED
#include <shardwright/launch.hpp>

using Runner = int (*)(const shardwright::LaunchOptions&,
                       const std::function<int(shardwright::HostCommunicator)>&);

Runner header_only_runner() {
  return &shardwright::detail::run_ranks<shardwright::HostCommunicator, shardwright::detail::with_mpi>;
}

int header_only_ranks() {
  int ranks = 0;
  shardwright::launch({.ranks = 3}, [&](shardwright::HostCommunicator world) {
    if (world.rank() == 0)
      ranks = world.size();
  });
  return ranks;
}
