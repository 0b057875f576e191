// SPDX-License-Identifier: Apache-2.0
#include "nn/device_check.hpp"
#include "nn/dry_run_check.hpp"
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/mimic_target.hpp"

// A decoder in bfloat16 compared with the same decoder in float, over 20 steps. The results of a step differ
// by relative roundings of 2^-8, the unit roundoff, which are independent and average out in the mean over a
// hundred tokens; and the weights stay close because the masters are floats. So losses may differ by that
// unit, and nothing may grow with the steps.

namespace {

using namespace nn_test;

constexpr double unit_roundoff = 0x1p-8;

[[nodiscard]] Problem problem_of(int steps) {
  Problem problem;
  problem.config = config_of_four();
  problem.steps = steps;
  return problem;
}

template <class Train> [[nodiscard]] std::vector<Outcome> on_threads(const Way& way, Train train) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(way.ranks()));
  sw::LaunchOptions options;
  options.ranks = way.ranks();
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_thread_ranks(options, [&](sw::HostCommunicator world) {
    outcomes[static_cast<std::size_t>(world.rank())] = train(world);
  });
  return outcomes;
}

[[nodiscard]] std::vector<Outcome> train_narrow(const Problem& problem, const Way& way) {
  return on_threads(way, [&](const sw::HostCommunicator& world) {
    return train_with<sw::DecoderLayouts<true>, sw::bfloat16>(world, problem, way, {});
  });
}

[[nodiscard]] Outcome train_float(const Problem& problem) {
  const Way way;
  return on_threads(way,
                    [&](const sw::HostCommunicator& world) { return train_single(world, problem, way, {}); })
      .front();
}

} // namespace

TEST_CASE("a decoder of bfloat16 starts from the float weights, rounded") {
  const Outcome narrow = train_narrow(problem_of(0), {}).front();
  const Outcome wide = train_float(problem_of(0));
  REQUIRE(narrow.names == wide.names);
  for (std::size_t p = 0; p < wide.parameters.size(); ++p) {
    bool rounded = narrow.parameters[p].size() == wide.parameters[p].size();
    for (std::size_t i = 0; rounded && i < wide.parameters[p].size(); ++i)
      rounded = narrow.parameters[p][i] == static_cast<double>(sw::bfloat16(wide.parameters[p][i]));
    INFO(wide.names[p]);
    CHECK(rounded);
  }
}

TEST_CASE("a decoder of bfloat16 trains like one of float, on every mesh") {
  const Problem problem = problem_of(20);
  const Outcome wide = train_float(problem);
  REQUIRE(wide.losses.back() < 0.5 * wide.losses.front());
  for (const Way& way : {Way{}, Way{.dp = 3}, Way{.dp = 2, .accumulation = 3}, Way{.tp = 4},
                         Way{.dp = 2, .tp = 2, .accumulation = 2}, Way{.cp = 2}, Way{.dp = 2, .dpr = 2}}) {
    const std::vector<Outcome> ranks = train_narrow(problem, way);
    INFO(way.text());
    CHECK(largest_difference(ranks.front().losses, wide.losses) < unit_roundoff);
    CHECK(largest_parameter_difference(ranks.front(), wide) < 4 * unit_roundoff);
    CHECK(ranks.front().tokens == wide.tokens);
    for (const Outcome& rank : ranks)
      CHECK(rank == ranks.front());
  }
}

TEST_CASE("models name their element, by which a device updates many parameters in a launch") {
  using Model = sw::Decoder<sw::DecoderLayouts<true>, sw::bfloat16, shardwright_test::MimicTarget>;
  STATIC_REQUIRE(std::is_same_v<sw::SingleStageModel<Model>::element, sw::bfloat16>);
  STATIC_REQUIRE(std::is_same_v<sw::PipelineModel<Model>::element, sw::bfloat16>);
}

TEST_CASE("a decoder of bfloat16 trains on a device bitwise as on the host, without a wait in a step") {
  const Problem problem = problem_of(4);
  for (const Way& way : {Way{.dp = 2, .accumulation = 3}, Way{.dp = 2, .tp = 2}, Way{.cp = 2}}) {
    INFO(way.text());
    const sw::Schedule schedule = sw::make_schedule("1f1b", 1, way.accumulation);
    const PipelineWay pipeline{.pp = 1, .inside = way};
    check_equal(
        device_outcomes(
            pipeline,
            [&](const sw::HostCommunicator& world) {
              return train_on_device<sw::DecoderLayouts<true>, sw::bfloat16, shardwright_test::MimicTarget>(
                  world, problem, pipeline, schedule);
            }),
        train_narrow(problem, way));
  }
}

TEST_CASE("a step of a decoder of bfloat16 takes no memory from the system once the pool has seen two") {
  for (const Way& way : {Way{}, Way{.dp = 2, .tp = 2, .accumulation = 2}}) {
    const auto train = [&](const sw::HostCommunicator& world) {
      std::size_t after_two = 0;
      std::size_t at_end = 0;
      Outcome out = train_with<sw::DecoderLayouts<true>, sw::bfloat16>(
          world, problem_of(6), way,
          [&](int step, const auto& pool) { (step == 1 ? after_two : at_end) = pool.allocations; });
      if (at_end != after_two)
        throw sw::Error("the pool took " + std::to_string(at_end - after_two) + " blocks more");
      return out;
    };
    CHECK_NOTHROW(on_threads(way, train));
  }
}

TEST_CASE(
    "memory and calls of a decoder of bfloat16 are as predicted, masters and float gradients included") {
  for (const Way& way : {Way{}, Way{.dp = 2, .tp = 2, .sequence_parallel = true}})
    CHECK(shardwright_test::on_ranks(
              way.ranks(), [&](const sw::HostCommunicator& world, shardwright_test::Findings& findings) {
                check_prediction<sw::DecoderLayouts<true>, sw::bfloat16>(world, findings, problem_of(0), way);
              }) == "");
}
