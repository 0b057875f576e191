// SPDX-License-Identifier: Apache-2.0
#include "nn/pipeline_training.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder_memory.hpp>

#include <cmath>
#include <string>

// The memory that is predicted before anything is allocated, against the pool's peak of the training itself.

namespace {

namespace sw = shardwright;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Way;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

template <class Layouts>
[[nodiscard]] sw::MemoryTable predicted_with(const Problem& problem, const PipelineWay& way,
                                             const sw::Schedule& schedule, int world_rank) {
  using namespace sw::axis;
  const auto extents = way.inside.extents();
  const sw::MeshShape stage{sw::extent<dpr>(extents.dpr), sw::extent<dp>(extents.dp),
                            sw::extent<cp>(extents.cp), sw::extent<tp>(extents.tp)};
  const int ranks = static_cast<int>(stage.size());
  return sw::decoder_memory<Layouts, float>(
      problem.config, sw::MeshPlace(stage, world_rank % ranks), schedule,
      sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages()), world_rank / ranks,
      problem.batch / schedule.microbatches());
}
[[nodiscard]] sw::MemoryTable predicted(const Problem& problem, const PipelineWay& way,
                                        const sw::Schedule& schedule, int world_rank) {
  return way.inside.sequence_parallel
             ? predicted_with<sw::DecoderLayouts<true>>(problem, way, schedule, world_rank)
             : predicted_with<sw::DecoderLayouts<false>>(problem, way, schedule, world_rank);
}

void expect_predicted(const Problem& problem, const PipelineWay& way, const sw::Schedule& schedule) {
  CHECK(on_ranks(way.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
          const sw::MemoryTable table = predicted(problem, way, schedule, world.rank());
          sw::PoolStatistics pool;
          static_cast<void>(nn_test::train_pipeline_single(
              world, problem, way, schedule, [&pool](int, const sw::PoolStatistics& now) { pool = now; }));
          const double share = static_cast<double>(pool.peak_bytes) / static_cast<double>(table.total()) - 1;
          findings.expect(std::abs(share) < 0.03, schedule.name(), " ", way.text(), " rank ", world.rank(),
                          ": ", pool.peak_bytes, " bytes measured, ", table.total(), " predicted");
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
        expect_predicted(problem, way, sw::make_schedule(name, way.pp, 8));
      }
}
