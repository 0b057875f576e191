// SPDX-License-Identifier: Apache-2.0
#include "nn/memory_check.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <string>

// The memory that is predicted before anything is allocated, against the pool's peak of the training itself.

namespace {

namespace sw = shardwright;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

[[nodiscard]] sw::MemoryTable predicted(Sharding sharding, const Problem& problem, const PipelineWay& way,
                                        const sw::Schedule& schedule, int world_rank) {
  switch (sharding) {
  case Sharding::zero1:
    return nn_test::predicted_memory<sw::DecoderLayouts<true, sw::Zero1>, float>(problem, way.inside,
                                                                                 schedule, world_rank);
  case Sharding::zero2:
    return nn_test::predicted_memory<sw::DecoderLayouts<true, sw::Zero2>, float>(problem, way.inside,
                                                                                 schedule, world_rank);
  case Sharding::zero3:
    return nn_test::predicted_memory<sw::DecoderLayouts<true, sw::Zero3>, float>(problem, way.inside,
                                                                                 schedule, world_rank);
  default:
    return way.inside.sequence_parallel
               ? nn_test::predicted_memory<sw::DecoderLayouts<true>, float>(problem, way.inside, schedule,
                                                                            world_rank)
               : nn_test::predicted_memory<sw::DecoderLayouts<false>, float>(problem, way.inside, schedule,
                                                                             world_rank);
  }
}

void expect_predicted(Sharding sharding, const Problem& problem, const PipelineWay& way,
                      const sw::Schedule& schedule) {
  CHECK(on_ranks(way.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
          sw::PoolStatistics pool;
          static_cast<void>(nn_test::train_zero(sharding, world, problem, way, schedule,
                                                [&pool](int, const sw::PoolStatistics& now) { pool = now; }));
          nn_test::expect_memory(predicted(sharding, problem, way, schedule, world.rank()), pool,
                                 schedule.name() + " " + way.text() + " sharding " +
                                     std::to_string(static_cast<int>(sharding)) + " rank " +
                                     std::to_string(world.rank()),
                                 findings);
        }) == "");
}

} // namespace

TEST_CASE("the predicted memory of a training is the measured peak of its pool") {
  Problem problem = nn_test::pipeline_problem(false);
  problem.steps = 3;
  for (const auto kind : {sw::Recompute::none, sw::Recompute::selective, sw::Recompute::full})
    for (const PipelineWay& way :
         {PipelineWay{}, PipelineWay{.pp = 1, .inside = {.dp = 3, .tp = 2}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .cp = 2}},
          PipelineWay{.pp = 2, .inside = {.dp = 2, .tp = 1}}, PipelineWay{.pp = 4, .inside = {}}})
      for (const char* name : {"1f1b", "zbh1", "zbv"}) {
        if (way.pp == 1 && name != std::string("1f1b"))
          continue;
        problem.config.recompute.kind = kind;
        problem.config.tied_embedding = kind == sw::Recompute::full;
        expect_predicted(Sharding::none, problem, way, sw::make_schedule(name, way.pp, 8));
      }
}

TEST_CASE("it is that of every sharding, with weights gathered ahead and gradients under way") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 3;
  int number = 0;
  for (const auto sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3})
    for (const PipelineWay& way :
         {PipelineWay{.pp = 1, .inside = {.dp = 3, .sequence_parallel = true}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .dpr = 2}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .cp = 2}},
          PipelineWay{.pp = 2, .inside = {.dp = 2, .sequence_parallel = true}}})
      for (const int microbatches : {1, 4}) {
        problem.config.recompute.kind = ++number % 2 == 0 ? sw::Recompute::full : sw::Recompute::selective;
        expect_predicted(sharding, problem, way, sw::make_schedule("1f1b", way.pp, microbatches));
      }
}
