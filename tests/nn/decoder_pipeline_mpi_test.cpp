// SPDX-License-Identifier: Apache-2.0
#include "nn/pipeline_training.hpp"
#include "support/catch.hpp"

#include <chrono>
#include <vector>

// The trainings of decoder_pipeline_test.cpp on MPI ranks, for the meshes that the number of ranks allows.

namespace {

namespace sw = shardwright;
using nn_test::PipelineOutcome;
using nn_test::PipelineWay;

std::vector<PipelineWay> ways_of(int ranks) {
  if (ranks == 4)
    return {{.pp = 4, .inside = {}},
            {.pp = 2, .inside = {.dp = 2, .tp = 1}},
            {.pp = 2, .inside = {.dp = 1, .tp = 2, .sequence_parallel = true}}};
  return {{.pp = ranks, .inside = {}}};
}

} // namespace

TEST_CASE("a pipeline trains on MPI ranks as on one rank, and bitwise as on thread ranks") {
  sw::LaunchOptions options;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_ranks(options, [](sw::HostCommunicator world) {
    nn_test::Problem problem = nn_test::pipeline_problem(true);
    problem.steps = 6;
    const nn_test::Outcome one = nn_test::train_on_threads<double>(problem, {.accumulation = 8}).front();
    for (const PipelineWay& way : ways_of(world.size()))
      for (const auto& proven : nn_test::every_schedule(way.pp, 8)) {
        INFO(proven.schedule.name() << " " << way.text() << " on rank " << world.rank());
        const PipelineOutcome run = nn_test::train_pipeline<double>(world, problem, way, proven.schedule);
        CHECK(nn_test::largest_difference(run.training.losses, one.losses) <= 1e-10);
        CHECK(nn_test::largest_difference(run.training.norms, one.norms) <= 1e-8);
        CHECK(run.training.tokens == one.tokens);
        const auto rank = static_cast<std::size_t>(world.rank() / way.inside.ranks());
        CHECK(run.peak_in_flight == proven.ranks[rank].peak_in_flight);
        if (world.rank() == 0)
          CHECK(run.training ==
                nn_test::train_pipeline_on_threads<double>(problem, way, proven.schedule).front().training);
      }
  });
}
