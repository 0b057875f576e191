// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The library's collectives of the comparison, on any transport.

#include "measurement.hpp"

#include <shardwright/comm/host_communicator.hpp>

#include <span>

namespace collectives {

/// @brief Runs a case's collective on a group of ranks.
inline void run_collective(shardwright::HostCommunicator& world, const Case& test, const Buffers& buffers) {
  const int rank = world.rank(), ranks = world.size();
  const std::span<const float> in(buffers.in(test, rank, ranks), Buffers::in_count(test, ranks));
  const std::span<float> out(buffers.out(test, rank, ranks), Buffers::out_count(test, ranks));
  switch (test.kind) {
  case Kind::all_reduce:
    return world.all_reduce(in, out);
  case Kind::reduce_scatter:
    return world.reduce_scatter(in, out);
  case Kind::all_gather:
    return world.all_gather(in, out);
  }
}

} // namespace collectives
