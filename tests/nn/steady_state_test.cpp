// SPDX-License-Identifier: Apache-2.0
#include "nn/device_check.hpp"
#include "nn/pipeline_training.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <cstddef>
#include <vector>

namespace {

using nn_test::Problem;
using nn_test::Way;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// The memory that a rank had allocated from the heap and from the system after each step.
struct Taken {
  std::vector<std::size_t> heap, pool;
};

/// Runs `train(at_step)`.
template <class Train> Taken taken(int steps, Train train) {
  Taken out;
  out.heap.reserve(static_cast<std::size_t>(steps));
  out.pool.reserve(static_cast<std::size_t>(steps));
  train([&out](int, const shardwright::PoolStatistics& pool) {
    out.heap.push_back(shardwright_test::heap_allocations());
    out.pool.push_back(pool.allocations);
  });
  return out;
}

/// No allocation after the second step, of six or more.
void expect_nothing_more(const Taken& after, int rank, Findings& findings) {
  findings.expect(after.pool.size() > 5 && after.pool[1] > 0 && after.pool.back() == after.pool[1], "rank ",
                  rank, ": the pool took ", after.pool.back() - after.pool[1], " blocks");
  if (shardwright_test::counts_heap)
    findings.expect(after.heap[1] > 0 && after.heap.back() == after.heap[1], "rank ", rank, ": ",
                    after.heap.back() - after.heap[1], " allocations");
}

nn_test::DeviceOutcome train_device_narrow(const shardwright::HostCommunicator& world, const Problem& problem,
                                           const nn_test::PipelineWay& way,
                                           const shardwright::Schedule& schedule,
                                           const nn_test::AtStep& at_step) {
  using Layouts = shardwright::DecoderLayouts<true, shardwright::Zero3>;
  return nn_test::train_on_device<Layouts, shardwright::bfloat16, shardwright_test::MimicTarget>(
      world, problem, way, schedule, at_step);
}

} // namespace

TEST_CASE("steps three to six of a training allocate nothing") {
  for (const Way& way : {Way{}, Way{.accumulation = 3}, Way{.dp = 2, .tp = 1}, Way{.dp = 1, .tp = 2},
                         Way{.dp = 1, .tp = 2, .sequence_parallel = true},
                         Way{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 3}}) {
    INFO(way.text());
    for (const auto recompute : {shardwright::Recompute::none, shardwright::Recompute::full})
      CHECK(on_ranks(way.dp * way.tp, [&](shardwright::HostCommunicator world, Findings& findings) {
              Problem problem = nn_test::problem_of(way, true);
              problem.steps = 6;
              problem.config.recompute.kind = recompute;
              problem.config.dropout = recompute == shardwright::Recompute::full ? 0.1 : 0.0;
              expect_nothing_more(taken(problem.steps,
                                        [&](const nn_test::AtStep& at_step) {
                                          static_cast<void>(
                                              nn_test::train_single(world, problem, way, at_step));
                                        }),
                                  world.rank(), findings);
            }) == "");
  }
}

TEST_CASE("nor do they in a pipeline under any schedule") {
  Problem problem = nn_test::pipeline_problem(true);
  problem.steps = 6;
  for (const nn_test::PipelineWay& way :
       {nn_test::PipelineWay{.pp = 2, .inside = {.dp = 2, .tp = 1}},
        nn_test::PipelineWay{.pp = 4, .inside = {.dp = 1, .tp = 2, .sequence_parallel = true}}})
    for (const nn_test::ProvenSchedule& proven : nn_test::every_schedule(way.pp, 8)) {
      INFO(proven.schedule.name() << " " << way.text());
      CHECK(on_ranks(way.ranks(), [&](shardwright::HostCommunicator world, Findings& findings) {
              expect_nothing_more(taken(problem.steps,
                                        [&](const nn_test::AtStep& at_step) {
                                          static_cast<void>(nn_test::train_pipeline_single(
                                              world, problem, way, proven.schedule, at_step));
                                        }),
                                  world.rank(), findings);
            }) == "");
    }
}

TEST_CASE("nor do they if model state is sharded") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 6;
  for (const nn_test::PipelineWay& way :
       {nn_test::PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .accumulation = 4}},
        nn_test::PipelineWay{.pp = 2,
        .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4, .dpr = 2}}}) {
    const auto schedule = shardwright::make_schedule("1f1b", way.pp, way.inside.accumulation);
    for (const nn_test::Sharding sharding : nn_test::every_sharding) {
      INFO(way.text() << " sharding " << static_cast<int>(sharding));
      CHECK(on_ranks(way.ranks(), [&](shardwright::HostCommunicator world, Findings& findings) {
              expect_nothing_more(taken(problem.steps,
                                        [&](const nn_test::AtStep& at_step) {
                                          static_cast<void>(nn_test::train_zero(sharding, world, problem, way,
                                                                                schedule, at_step));
                                        }),
                                  world.rank(), findings);
            }) == "");
    }
  }
}

TEST_CASE("nor do they on a device, in float or bfloat16, on one rank or on several") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 6;
  for (const nn_test::PipelineWay& way :
       {nn_test::PipelineWay{.pp = 1, .inside = {.accumulation = 4}},
        nn_test::PipelineWay{.pp = 1, .inside = {.dp = 2, .accumulation = 1}},
        nn_test::PipelineWay{.pp = 1, .inside = {.dp = 2, .accumulation = 4}},
        nn_test::PipelineWay{.pp = 1, .inside = {.tp = 2, .accumulation = 1}},
        nn_test::PipelineWay{.pp = 1,
        .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2}},
        nn_test::PipelineWay{.pp = 2, .inside = {.dp = 2, .accumulation = 4}}}) {
    INFO(way.text());
    const auto schedule = shardwright::make_schedule("1f1b", way.pp, way.inside.accumulation);
    for (const auto train : {nn_test::train_device_zero3, train_device_narrow})
      CHECK(on_ranks(way.ranks(), [&](const shardwright::HostCommunicator& ranks, Findings& findings) {
              // With a clock in every other run.
              const auto clock = train == train_device_narrow
                                     ? std::make_shared<shardwright::CommunicationClock>()
                                     : nullptr;
              const shardwright::HostCommunicator world = shardwright::timed(ranks, clock);
              expect_nothing_more(taken(problem.steps,
                                        [&](const nn_test::AtStep& at_step) {
                                          static_cast<void>(train(world, problem, way, schedule, at_step));
                                        }),
                                  world.rank(), findings);
            }) == "");
  }
}
