// SPDX-License-Identifier: Apache-2.0
#include "nn/device_training.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"
#include "support/mimic_target.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

// The device path of the whole training stack against the host's, to the bit, on thread ranks.

namespace {

namespace sw = shardwright;
using nn_test::DeviceOutcome;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using nn_test::Way;
using shardwright_test::MimicTarget;

[[nodiscard]] Problem small_problem() {
  Problem problem = nn_test::zero_problem();
  problem.steps = 4;
  return problem;
}

/// Losses, norms, tokens and parameters of every rank; no wait and no new memory from the third step on.
void check_equal(const std::vector<DeviceOutcome>& device,
                 const std::vector<nn_test::PipelineOutcome>& host) {
  REQUIRE(device.size() == host.size());
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(device[rank].pipeline.training == host[rank].training);
    CHECK(device[rank].pipeline.evaluated == host[rank].evaluated);
    CHECK(std::all_of(device[rank].waits.begin() + 2, device[rank].waits.end(),
                      [](std::int64_t waits) { return waits == 0; }));
    CHECK(device[rank].pool[1] > 0);
    CHECK(device[rank].pool.back() == device[rank].pool[1]);
  }
}

template <class Train>
[[nodiscard]] std::vector<DeviceOutcome> device_outcomes(const PipelineWay& way, Train train) {
  std::vector<DeviceOutcome> out(static_cast<std::size_t>(way.ranks()));
  static_cast<void>(nn_test::pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    out[static_cast<std::size_t>(world.rank())] = train(world);
    return nn_test::PipelineOutcome{};
  }));
  return out;
}

} // namespace

nn_test::DeviceOutcome nn_test::train_device_zero3(const sw::HostCommunicator& world, const Problem& problem,
                                                   const PipelineWay& way, const sw::Schedule& schedule,
                                                   const AtStep& at_step) {
  return train_on_device<sw::DecoderLayouts<true, sw::Zero3>, float, MimicTarget>(world, problem, way,
                                                                                  schedule, at_step);
}

TEST_CASE("a decoder on a device trains to the bits of the host, without a wait in a step") {
  Problem problem = small_problem();
  for (const PipelineWay& way :
       {PipelineWay{.pp = 1, .inside = {.accumulation = 2}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2}},
        PipelineWay{.pp = 2, .inside = {.dp = 2, .accumulation = 4}},
        PipelineWay{.pp = 2, .inside = {.sequence_parallel = true, .accumulation = 2, .cp = 2}},
        PipelineWay{.pp = 1, .inside = {.dp = 3, .accumulation = 1}}}) {
    INFO(way.text());
    problem.config.recompute.kind = way.pp == 2 ? sw::Recompute::full : sw::Recompute::none;
    problem.config.dropout = way.inside.tp == 2 ? 0.1 : 0.0;
    const sw::Schedule schedule = sw::make_schedule("1f1b", way.pp, way.inside.accumulation);
    check_equal(device_outcomes(way,
                                [&](const sw::HostCommunicator& world) {
                                  return nn_test::train_device_zero3(world, problem, way, schedule);
                                }),
                nn_test::train_zero_on_threads(Sharding::zero3, problem, way));
  }
}
