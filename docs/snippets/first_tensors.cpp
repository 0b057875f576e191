// SPDX-License-Identifier: Apache-2.0
//
// The first half of the tutorial: ranks, a mesh, a tensor in two layouts.
//! [launch]
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/layout/describe.hpp>

#include <cstdio>

namespace sw = shardwright;
using namespace sw::axis;

int program(sw::HostCommunicator world);

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
//! [launch]

/// Ranks speak one after the other.
template <class Speak> void in_turn(sw::HostCommunicator& world, Speak speak) {
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) {
      speak();
      std::fflush(stdout);
    }
    world.barrier();
  }
}

//! [layouts]
using Rows = sw::Layout<2, sw::Shard<0, dp>>;                     // rows split over dp, copied over tp
using Blocks = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>; // rows over dp and columns over tp
//! [layouts]

int program(sw::HostCommunicator world) {
  //! [mesh]
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
  //! [mesh]

  //! [tensor]
  sw::ShardedTensor<Rows> table(mesh, {5, 4});
  sw::fill_uniform(table, {.seed = 1, .tensor = 0});
  //! [tensor]

  //! [redistribute]
  auto blocks = sw::redistribute<Blocks>(table);
  //! [redistribute]
  if (world.rank() == 0)
    std::printf("%s\n", (sw::describe<sw::Transition<Rows, Blocks>>().c_str()));
  world.barrier();
  in_turn(world, [&] {
    std::printf("rank %d at dp=%d, tp=%d holds %d x %d, from row %d and column %d on\n", mesh.rank(),
                mesh.coordinate<dp>(), mesh.coordinate<tp>(), static_cast<int>(blocks.local_shape()[0]),
                static_cast<int>(blocks.local_shape()[1]), static_cast<int>(blocks.local_offset()[0]),
                static_cast<int>(blocks.local_offset()[1]));
  });

  //! [sum]
  const auto part = sw::reduce_all<sw::Sum>(blocks); // Layout<0, Partial<Sum, dp, tp>>: each rank's part
  const float total = sw::item(sw::redistribute<sw::Layout<0>>(part));
  //! [sum]
  const float again = sw::item(sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Sum>(table)));
  return total > 0 && total - again < 1e-5F && again - total < 1e-5F ? 0 : 1;
}
