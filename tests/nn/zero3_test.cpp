// SPDX-License-Identifier: Apache-2.0
#include "nn/device_check.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"
#include "support/mimic_nccl.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

// The results that must be bitwise the same however the model state is sharded.

namespace {

namespace sw = shardwright;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using nn_test::train_zero_on_threads;
using nn_test::Way;

/// Calls of one rank apart from its passes, in a run on two data ranks.
struct Calls {
  double gathers = 0;
  double reductions = 0;
  friend bool operator==(const Calls&, const Calls&) = default;
};

Calls calls_of(Sharding sharding, const Problem& problem, const PipelineWay& way) {
  const sw::Schedule schedule = sw::make_schedule("1f1b", 1, way.inside.accumulation);
  std::vector<Calls> calls(2);
  static_cast<void>(nn_test::pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    const auto clock = std::make_shared<sw::CommunicationClock>();
    auto outcome =
        nn_test::train_zero(sharding, sw::timed(world, clock, "ranks"), problem, way, schedule, {});
    Calls& own = calls[static_cast<std::size_t>(world.rank())];
    for (const sw::CommunicationKind& kind : clock->kinds()) {
      const std::string_view group = kind.group;
      own.gathers += group.ends_with("gathers") ? kind.totals.calls : 0;
      own.reductions += group.ends_with("reductions") ? kind.totals.calls : 0;
    }
    return outcome;
  }));
  CHECK(calls[0] == calls[1]);
  return calls[0];
}

} // namespace

nn_test::PipelineOutcome nn_test::train_zero3(Sharding sharding, const sw::HostCommunicator& world,
                                              const Problem& problem, const PipelineWay& way,
                                              const sw::Schedule& schedule, const AtStep& at_step) {
  if (sharding == Sharding::zero3)
    return train_pipeline_with<sw::DecoderLayouts<true, sw::Zero3>, float>(world, problem, way, schedule,
                                                                           at_step);
  return train_pipeline_with<sw::DecoderLayouts<true, sw::ReduceOncePerStep<sw::Zero3>>, float>(
      world, problem, way, schedule, at_step);
}

nn_test::DeviceOutcome nn_test::train_device_zero3(const sw::HostCommunicator& world, const Problem& problem,
                                                   const PipelineWay& way, const sw::Schedule& schedule,
                                                   const AtStep& at_step) {
  return train_on_device<sw::DecoderLayouts<true, sw::Zero3>, float, shardwright_test::MimicTarget>(
      world, problem, way, schedule, at_step);
}

namespace {

/// The training on a device has the same bits as the host's.
void check_on_device(const Problem& problem, const PipelineWay& way) {
  const sw::Schedule schedule = sw::make_schedule("1f1b", way.pp, way.inside.accumulation);
  std::vector<nn_test::Outcome> host;
  for (const auto& rank : train_zero_on_threads(Sharding::zero3, problem, way))
    host.push_back(rank.training);
  check_equal(nn_test::device_outcomes(way,
                                       [&](const sw::HostCommunicator& world) {
                                         return nn_test::train_device_zero3(world, problem, way, schedule);
                                       }),
              host);
}

} // namespace

TEST_CASE("a decoder trains on a device bitwise as on the host, without a wait in a step") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 4;
  for (const PipelineWay& way :
       {PipelineWay{.pp = 1, .inside = {.accumulation = 2}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2}},
        PipelineWay{.pp = 2, .inside = {.dp = 2, .accumulation = 4}},
        PipelineWay{.pp = 2, .inside = {.sequence_parallel = true, .accumulation = 2, .cp = 2}},
        PipelineWay{.pp = 1, .inside = {.dp = 3, .accumulation = 1}}}) {
    INFO(way.text());
    problem.config.recompute.kind = way.pp == 2 ? sw::Recompute::full : sw::Recompute::none;
    problem.config.dropout = way.inside.tp == 2 ? 0.1 : 0.0;
    check_on_device(problem, way);
  }
}

TEST_CASE("a decoder trains on devices connected by NCCL bitwise as on the host") {
  const shardwright_test::OverNccl over_nccl;
  Problem problem = nn_test::zero_problem();
  problem.steps = 2;
  for (const PipelineWay& way :
       {PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2}},
        PipelineWay{.pp = 3, .inside = {.dp = 2, .accumulation = 4}},
        PipelineWay{.pp = 2, .inside = {.sequence_parallel = true, .accumulation = 2, .cp = 2}}}) {
    INFO(way.text());
    check_on_device(problem, way);
    CHECK(shardwright_test::FakeNcclWorld::get().violations() == "");
    CHECK(shardwright_test::FakeNcclWorld::get().communicators == 0);
  }
}

TEST_CASE("shardings that reduce equally often give the same bits on one mesh") {
  const Problem problem = nn_test::zero_problem();
  for (const PipelineWay& way :
       {PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true}},
        PipelineWay{.pp = 1, .inside = {.dp = 3, .sequence_parallel = true}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .cp = 2, .dpr = 2}},
        PipelineWay{.pp = 2, .inside = {.dp = 2, .sequence_parallel = true, .accumulation = 4}},
        PipelineWay{.pp = 2,
        .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4, .dpr = 2}}}) {
    INFO(way.text());
    const auto plain = train_zero_on_threads(Sharding::none, problem, way);
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero1, problem, way), plain));
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero3_once, problem, way), plain));
    const auto each = train_zero_on_threads(Sharding::zero2, problem, way);
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero3, problem, way), each));
    if (way.inside.accumulation == 1)
      CHECK(nn_test::same_bits(each, plain));
  }
}

TEST_CASE("the size of the buckets changes no bit") {
  const Problem problem = nn_test::zero_problem();
  for (const Way& inside : {Way{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4},
                            Way{.dp = 3, .sequence_parallel = true, .accumulation = 2},
                            Way{.dp = 2, .sequence_parallel = true, .accumulation = 2, .cp = 2, .dpr = 2}})
    for (const Sharding sharding : nn_test::every_sharding) {
      INFO(inside.text() << " sharding " << static_cast<int>(sharding));
      PipelineWay way{.pp = 1, .inside = inside};
      const auto usual = train_zero_on_threads(sharding, problem, way);
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1000}, std::size_t{9000}}) {
        way.bucket_bytes = bytes;
        INFO("buckets of " << bytes << " bytes");
        CHECK(nn_test::same_bits(train_zero_on_threads(sharding, problem, way), usual));
      }
    }
}

TEST_CASE("weights are gathered once for each use, and gradients in as few calls as the buckets allow") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 3;
  // Two layers of six parameters, a final gain, and a table that is both embedding and head.
  constexpr double forward = 1 + 2 * 6 + 2;
  constexpr double backward = 1 * 6; // the head's weights and those of the last layer are still there,
  constexpr double kept = 1 * 6;     // and those of the first layer for the next microbatch
  for (const int microbatches : {1, 4}) {
    PipelineWay way{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .accumulation = microbatches}};
    const double gathers = 3 * (microbatches * (forward + backward) - (microbatches - 1) * kept) +
                           microbatches * forward; // the last ones in an evaluation
    CHECK(calls_of(Sharding::zero3, problem, way) == Calls{gathers, 3});
    CHECK(calls_of(Sharding::zero3_once, problem, way) == Calls{gathers, 3});
    CHECK(calls_of(Sharding::none, problem, way) == Calls{0, 3});
    way.bucket_bytes = 0;
    CHECK(calls_of(Sharding::zero3, problem, way) == Calls{gathers, 3.0 * microbatches * 14});
    CHECK(calls_of(Sharding::zero3_once, problem, way) == Calls{gathers, 3 * 14});
    CHECK(calls_of(Sharding::zero1, problem, way) == Calls{0, 3 * 14});
  }
}
