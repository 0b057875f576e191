// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "train/toy_stage.hpp"

#include <shardwright/train/pipeline/measured_timetable.hpp>

#include <cstddef>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::Approx;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::Pass;
using sw::PipelineWork;

} // namespace

TEST_CASE("Measured passes count from the first one, in the requested unit, without waits") {
  const std::vector<sw::RankTimeline> ranks{{{PipelineWork::compute, {Pass::forward, 0, 0}, 0.5, 0.75},
                                             {PipelineWork::wait_input, {Pass::backward, 0, 0}, 0.75, 1.5},
                                             {PipelineWork::compute, {Pass::backward, 0, 0}, 1.5, 2.0}},
                                            {{PipelineWork::wait_input, {Pass::forward, 1, 0}, 0.1, 0.75},
                                             {PipelineWork::compute, {Pass::forward, 1, 0}, 0.75, 1.0},
                                             {PipelineWork::compute, {Pass::backward, 1, 0}, 1.0, 1.5}}};
  const sw::Timetable table = sw::measured_timetable(ranks, sw::StagePlacement::loop(2), 1, 1e-3);
  CHECK(table.label == "measured");
  CHECK(table.makespan() == Approx(1500));
  CHECK(table.busy(0) == Approx(750));
  CHECK(table.bubble() == Approx(750));
  REQUIRE(table.steps(1).size() == 2);
  CHECK(table.steps(1)[0].start == Approx(250));
  CHECK(table.steps(1)[1].step.first == sw::Action{Pass::backward, 1, 0});
  CHECK(table.peak(0) == 1);
  const sw::PassCosts costs = sw::mean_costs(table);
  CHECK(costs.forward == Approx(250));
  CHECK(costs.input_gradient == Approx(250)); // half a B
  CHECK(costs.weight_gradient == Approx(250));
}

TEST_CASE("Mean costs of a timetable reproduce its busy time") {
  sw::Timetable table = sw::planned_timetable(sw::make_schedule<sw::DualPipeV>(2, 6),
                                              {.forward = 2, .input_gradient = 3, .weight_gradient = 1});
  const sw::PassCosts exact = sw::mean_costs(table);
  CHECK(exact.input_gradient / exact.weight_gradient == Approx(3));
  for (auto& steps : table.ranks) // a B that takes longer than its I and W
    for (sw::TimedStep& timed : steps)
      if (timed.step.first.pass == Pass::backward)
        timed.end += 0.5;
  const sw::PassCosts costs = sw::mean_costs(table);
  double backwards = 0;
  double took = 0;
  for (const auto& steps : table.ranks)
    for (const sw::TimedStep& timed : steps)
      for (int i = 0; i < timed.step.size(); ++i)
        if (timed.step[i].pass != Pass::forward) {
          backwards += costs.of(timed.step[i].pass);
          took += (timed.end - timed.start) / timed.step.size();
        }
  CHECK(backwards == Approx(took));
}

TEST_CASE(
    "A run's timetable has every pass once, in the order of the schedule, and no pass before its input") {
  for (const int count : {1, 2, 4})
    for (const sw::Schedule& schedule : train_test::all_schedules(count, 8))
      CHECK(on_ranks(count, [&](sw::HostCommunicator world, Findings& findings) {
              train_test::ToyPipeline pipeline(world, schedule.placement());
              sw::PipelineRunner<train_test::ToyStage> runner(world, schedule, pipeline.chunks(),
                                                              {.record = true});
              const std::vector<train_test::ToyStage::Batch> batches(8);
              for (int turn = 0; turn < 2; ++turn)
                static_cast<void>(runner.run(batches));
              const auto timelines = sw::gather_timelines(world, runner.timeline());
              const sw::Timetable table = sw::measured_timetable(timelines, schedule.placement(), 8);
              std::vector<double> forwards(static_cast<std::size_t>(schedule.stages() * 8), -1);
              for (int rank = 0; rank < count; ++rank) {
                std::vector<sw::Action> ran;
                std::vector<sw::Action> wanted;
                for (const sw::TimedStep& timed : table.steps(rank)) {
                  ran.push_back(timed.step.first);
                  const sw::Action& action = timed.step.first;
                  if (action.pass == Pass::forward)
                    forwards[static_cast<std::size_t>(action.stage * 8 + action.microbatch)] = timed.start;
                }
                for (const sw::Step& step : schedule.steps(rank))
                  for (int i = 0; i < step.size(); ++i)
                    wanted.push_back(step[i]);
                findings.expect(ran == wanted,
                                schedule.name() + ": the passes are those of the schedule, in its order");
              }
              bool causal = true; // threads read one clock, so a later stage never starts earlier
              for (std::size_t i = 8; i < forwards.size(); ++i)
                causal = causal && forwards[i - 8] <= forwards[i];
              findings.expect(causal, schedule.name() + ": no stage starts before the one that it needs");
            }) == "");
}
