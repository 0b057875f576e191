// SPDX-License-Identifier: Apache-2.0
#include "nn/pipeline_training.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

// A decoder on the ranks of a pipeline, under every schedule, compared with one rank.

namespace {

namespace sw = shardwright;
using nn_test::Outcome;
using nn_test::PipelineOutcome;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::ProvenSchedule;
using nn_test::Way;

constexpr int microbatches = 8;

/// Checks that losses, tokens, norms and this rank's parameters are those of one rank, and the peak is the
/// proven one.
template <class Element>
void check_pipeline(const Problem& problem, const PipelineWay& way, const ProvenSchedule& proven,
                    const Outcome& one, double tolerance) {
  INFO(proven.schedule.name() << " " << way.text());
  const std::vector<PipelineOutcome> all =
      nn_test::train_pipeline_on_threads<Element>(problem, way, proven.schedule);
  const Outcome& first = all.front().training;
  CHECK(first.tokens == one.tokens);
  const double losses = nn_test::largest_difference(first.losses, one.losses);
  const double norms = nn_test::largest_difference(first.norms, one.norms);
  INFO("losses differ by " << losses << ", norms by " << norms);
  CHECK(losses <= tolerance);
  CHECK(norms <= 100 * tolerance);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    INFO("rank " << rank);
    const Outcome& training = all[rank].training;
    CHECK(training.losses == first.losses);
    CHECK(training.norms == first.norms);
    CHECK(all[rank].evaluated == all.front().evaluated);
    CHECK(all[rank].evaluated < first.losses.back() * 1.02);
    const std::size_t stage_rank = rank / static_cast<std::size_t>(way.inside.ranks());
    CHECK(all[rank].peak_in_flight == proven.ranks[stage_rank].peak_in_flight);
    Outcome same;
    for (const std::string& name : training.names) {
      const auto found = std::find(one.names.begin(), one.names.end(), name);
      REQUIRE(found != one.names.end());
      same.names.push_back(name);
      same.parameters.push_back(one.parameters[static_cast<std::size_t>(found - one.names.begin())]);
    }
    CHECK(nn_test::largest_parameter_difference(training, same) <= 1000 * tolerance);
  }
}

} // namespace

nn_test::PipelineOutcome nn_test::train_pipeline_single(const sw::HostCommunicator& world,
                                                        const Problem& problem, const PipelineWay& way,
                                                        const sw::Schedule& schedule, const AtStep& at_step) {
  return train_pipeline<float>(world, problem, way, schedule, at_step);
}

TEST_CASE("a decoder trains alike under every schedule on every mesh in single precision") {
  for (const bool tied : {false, true}) {
    Problem problem = nn_test::pipeline_problem(tied);
    if (nn_test::slow)
      problem.steps = 2;
    const Outcome one = nn_test::train_on_threads<float>(problem, {.accumulation = microbatches}).front();
    CHECK(one.losses.back() < (nn_test::slow ? 1.1 : 0.8) * one.losses.front());
    // Each schedule trains tied models on half of the meshes and others on the other half, in turns.
    bool tied_on_squares = true;
    for (const int pp : {2, 3, 4})
      for (const ProvenSchedule& proven : nn_test::every_schedule(pp, microbatches)) {
        for (const int dp : {1, 2})
          for (const int tp : {1, 2})
            if ((dp == tp) == (tied == tied_on_squares))
              check_pipeline<float>(
                  problem, {.pp = pp, .inside = {.dp = dp, .tp = tp, .sequence_parallel = dp * tp == 4}},
                  proven, one, 1e-5);
        tied_on_squares = !tied_on_squares;
      }
    const ProvenSchedule proven = nn_test::every_schedule(2, microbatches).front();
    check_pipeline<float>(problem, {.pp = 2, .inside = {.cp = 2}}, proven, one, 1e-5);
  }
}

TEST_CASE("every schedule of two ranks gives the losses of one rank to ten digits in double precision") {
  Problem problem = nn_test::pipeline_problem(true);
  if (nn_test::slow)
    problem.steps = 2;
  const Outcome one = nn_test::train_on_threads<double>(problem, {.accumulation = microbatches}).front();
  for (const ProvenSchedule& proven : nn_test::every_schedule(2, microbatches))
    check_pipeline<double>(problem, {.pp = 2, .inside = {.dp = 2, .tp = 2}}, proven, one, 1e-10);
}

TEST_CASE("stages may hold unequal numbers of layers, or none") {
  const Problem problem = nn_test::pipeline_problem(false);
  const Outcome one = nn_test::train_on_threads<double>(problem, {.accumulation = microbatches}).front();
  for (const std::vector<int>& layers : {std::vector<int>{0, 1, 5, 0}, {5, 0, 0, 1}, {1, 2, 3, 0}})
    for (const ProvenSchedule& proven : nn_test::every_schedule(4, microbatches))
      if (proven.schedule.stages() == 4)
        check_pipeline<double>(problem, {.pp = 4, .inside = {}, .options = {}, .layers = layers}, proven, one,
                               1e-10);
}

TEST_CASE("the smallest window of messages trains like the largest") {
  const Problem problem = nn_test::pipeline_problem(false);
  const Outcome one = nn_test::train_on_threads<double>(problem, {.accumulation = microbatches}).front();
  std::size_t schedules = 0;
  for (const sw::MessageWindow& window : {sw::MessageWindow{0, 1}, sw::MessageWindow{1000, 1000}})
    for (const ProvenSchedule& proven : nn_test::every_schedule(4, microbatches, window)) {
      check_pipeline<double>(problem, {.pp = 4, .inside = {}}, proven, one, 1e-10);
      ++schedules;
    }
  CHECK(schedules >= 8);
}

TEST_CASE("a timeline holds every action once, one after the other, the same on all ranks") {
  Problem problem = nn_test::pipeline_problem(false);
  problem.steps = 2;
  for (const ProvenSchedule& proven : nn_test::every_schedule(4, microbatches)) {
    INFO(proven.schedule.name());
    const PipelineWay way{.pp = 4, .inside = {}, .options = {.record = true}};
    const auto all = nn_test::train_pipeline_on_threads<float>(problem, way, proven.schedule);
    for (const PipelineOutcome& outcome : all) {
      REQUIRE(outcome.timelines.size() == 4);
      for (int rank = 0; rank < 4; ++rank) {
        const sw::RankTimeline& events = outcome.timelines[static_cast<std::size_t>(rank)];
        std::vector<sw::Action> done;
        double now = 0;
        for (const sw::PipelineEvent& event : events) {
          CHECK(event.begin_seconds >= now);
          CHECK(event.end_seconds >= event.begin_seconds);
          now = event.end_seconds;
          if (event.work == sw::PipelineWork::compute)
            done.push_back(event.action);
        }
        std::vector<sw::Action> planned;
        for (const sw::Step& step : proven.schedule.steps(rank))
          for (int i = 0; i < step.size(); ++i)
            planned.push_back(step[i]);
        CHECK(done == planned);
        const sw::RankTimeline& same = all.front().timelines[static_cast<std::size_t>(rank)];
        CHECK(std::equal(events.begin(), events.end(), same.begin(), same.end(),
                         [](const auto& a, const auto& b) {
                           return a.begin_seconds == b.begin_seconds && a.end_seconds == b.end_seconds &&
                                  a.action == b.action && a.work == b.work;
                         }));
      }
    }
  }
}
