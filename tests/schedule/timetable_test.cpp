// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sw = shardwright;
using shardwright_test::Approx;

namespace {

const sw::PassCosts uneven{.forward = 2, .input_gradient = 3, .weight_gradient = 1.5, .send = 0.25};

/// When every pass of every stage and microbatch ended, and when it began.
using Spans = std::map<std::pair<int, int>, std::pair<double, double>>;

Spans spans_of(const sw::Timetable& table, bool forwards) {
  Spans out;
  for (const auto& steps : table.ranks)
    for (const sw::TimedStep& timed : steps)
      for (int i = 0; i < timed.step.size(); ++i) {
        const sw::Action& action = timed.step[i];
        if (action.pass == sw::Pass::weight_gradient || (action.pass == sw::Pass::forward) != forwards)
          continue;
        out[{action.stage, action.microbatch}] = {timed.start, timed.end};
      }
  return out;
}

} // namespace

TEST_CASE("A planned timetable has the figures of the proof and keeps its order") {
  int tables = 0;
  for (const std::string& name : sw::schedule_names())
    for (const int ranks : {2, 3, 4, 6})
      for (const int microbatches : {1, 4, 12, 13})
        for (const sw::PassCosts& costs : {sw::PassCosts{}, uneven}) {
          if ((name == "dualpipe" && (ranks % 2 != 0 || microbatches % 2 != 0)) ||
              (name.starts_with("dualpipe") && microbatches < 2 * ranks) ||
              (name.starts_with("interleaved") && microbatches % std::max(1, microbatches / ranks) != 0))
            continue;
          const sw::Schedule schedule = sw::make_schedule(name, ranks, microbatches);
          INFO(name << ", " << ranks << " ranks, " << microbatches << " microbatches");
          ++tables;
          std::vector<sw::RankProof> each(static_cast<std::size_t>(ranks));
          const sw::Proof proof = sw::prove(schedule, costs, schedule.window(), each);
          const sw::Timetable table = sw::planned_timetable(schedule, costs);
          REQUIRE(proof.holds());
          CHECK(table.makespan() == Approx(proof.makespan));
          CHECK(table.bubble() == Approx(proof.bubble).margin(1e-9));
          for (int rank = 0; rank < ranks; ++rank) {
            CHECK(table.peak(rank) == each[static_cast<std::size_t>(rank)].peak_in_flight);
            CHECK(table.kept(rank).back().count == 0);
            REQUIRE(table.steps(rank).size() == schedule.steps(rank).size());
            double now = 0;
            bool ordered = true;
            for (const sw::TimedStep& timed : table.steps(rank)) {
              ordered = ordered && timed.start >= now && timed.end > timed.start;
              now = timed.end;
            }
            CHECK(ordered);
          }
          const Spans forwards = spans_of(table, true);
          const Spans gradients = spans_of(table, false);
          bool causal = forwards.size() == static_cast<std::size_t>(schedule.stages() * microbatches);
          for (const auto& [key, span] : forwards) {
            const auto [stage, microbatch] = key;
            if (stage > 0)
              causal = causal && forwards.at({stage - 1, microbatch}).second <= span.first;
            causal = causal && span.second <= gradients.at(key).first;
            if (stage + 1 < schedule.stages())
              causal = causal && gradients.at({stage + 1, microbatch}).second <= gradients.at(key).first;
          }
          CHECK(causal);
        }
  CHECK(tables > 150);
}

TEST_CASE("An end and a start at the same time do not raise the number kept") {
  const auto kept = sw::planned_timetable(sw::make_schedule("1f1b", 2, 3)).kept(1);
  REQUIRE(kept.size() == 3); // nothing, then one microbatch after the other without a gap, then nothing
  CHECK(kept[0].count == 0);
  CHECK(kept[1].time == 1);
  CHECK(kept[1].count == 1);
  CHECK(kept[2].time == 10);
  CHECK(kept[2].count == 0);
}

TEST_CASE("A schedule that does not hold has no timetable, and the error says why") {
  const sw::Schedule incomplete("own", sw::StagePlacement::loop(1), 1,
                                {{{{sw::Pass::forward, 0, 0}, {}, false}}});
  CHECK_THROWS_AS(sw::planned_timetable(incomplete), sw::InvalidArgument);
  CHECK_THROWS_WITH(sw::planned_timetable(incomplete),
                    shardwright_test::ContainsSubstring("is missing on rank 0"));
}
