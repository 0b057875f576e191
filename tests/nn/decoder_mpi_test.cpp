// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"

#include <chrono>
#include <vector>

// The trainings of decoder_double_test.cpp on MPI ranks, for the meshes that the number of ranks allows.

namespace {

namespace sw = shardwright;
using nn_test::Outcome;
using nn_test::Way;

std::vector<Way> ways_of(int ranks) {
  std::vector<Way> out;
  if (ranks == 1)
    return {{.accumulation = 3}};
  for (const Way& way : nn_test::ways())
    if (way.ranks() == ranks)
      out.push_back(way);
  return out;
}

} // namespace

TEST_CASE("a decoder trains on MPI ranks as on one rank, and bitwise as on thread ranks") {
  sw::LaunchOptions options;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_ranks(options, [](sw::HostCommunicator world) {
    for (const Way& way : ways_of(world.size())) {
      const nn_test::Problem problem = nn_test::problem_of(way, true);
      const Outcome run = nn_test::train<double>(world, problem, way);
      const Outcome again = nn_test::train<double>(world, problem, way);
      INFO(way.text() << " on rank " << world.rank());
      CHECK(run == again);
      if (world.rank() != 0)
        continue;
      const Outcome one = nn_test::train_on_threads<double>(problem, {}).front();
      CHECK(run.tokens == one.tokens);
      CHECK(nn_test::largest_difference(run.losses, one.losses) <= 1e-10);
      CHECK(nn_test::largest_difference(run.norms, one.norms) <= 1e-8);
      CHECK(nn_test::largest_parameter_difference(run, one) <= 1e-7);
      CHECK(run == nn_test::train_on_threads<double>(problem, way).front());
    }
  });
}
