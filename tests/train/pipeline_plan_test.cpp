// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/train/pipeline/plan.hpp>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using sw::detail::PipelineMessage;
using sw::detail::PipelinePlan;
using sw::detail::PlannedAction;
using Kind = PipelineMessage::Kind;

std::vector<PlannedAction> actions_of(const PipelinePlan& plan) {
  std::vector<PlannedAction> out;
  for (const auto& step : plan.steps)
    out.insert(out.end(), step.actions.begin(), step.actions.begin() + step.count);
  return out;
}

void check_plans(const sw::Schedule& schedule) {
  INFO(schedule.name() << " on " << schedule.ranks() << " ranks with " << schedule.microbatches());
  std::vector<PipelinePlan> plans;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    plans.emplace_back(schedule, rank);

  // 1. Every message that is sent is received once, under a tag that is unique between the two ranks.
  std::set<std::tuple<int, int, int>> sent;
  std::set<std::tuple<int, int, int>> received;
  std::size_t sends = 0;
  std::size_t receives = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const PlannedAction& planned : actions_of(plans[static_cast<std::size_t>(rank)])) {
      if (planned.output.kind == Kind::remote && ++sends > 0)
        sent.emplace(rank, planned.output.peer, planned.output.tag);
      if (planned.input.kind == Kind::remote && ++receives > 0)
        received.emplace(planned.input.peer, rank, planned.input.tag);
    }
  CHECK(sent == received);
  CHECK(sent.size() == sends);
  CHECK(received.size() == receives);

  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    INFO("rank " << rank);
    const PipelinePlan& plan = plans[static_cast<std::size_t>(rank)];
    const std::vector<PlannedAction> actions = actions_of(plan);
    // 2. Every input has a separate slot, and outputs that stay on the rank go to the slot that is read
    // later.
    std::map<std::size_t, std::size_t> reads;
    for (std::size_t i = 0; i < actions.size(); ++i)
      if (actions[i].input.kind != Kind::none) {
        CHECK(actions[i].input.slot < plan.slots);
        CHECK(reads.emplace(actions[i].input.slot, i).second);
      }
    // 3. A channel is one rank in one direction.
    std::map<std::size_t, std::set<std::pair<int, bool>>> destinations;
    std::map<int, int> forwards_end;
    std::map<int, int> gradients_end;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const PlannedAction& planned = actions[i];
      if (planned.output.kind == Kind::local) {
        REQUIRE(reads.count(planned.output.slot) == 1);
        CHECK(reads[planned.output.slot] > i);
        CHECK(actions[reads[planned.output.slot]].action.microbatch == planned.action.microbatch);
      }
      if (planned.output.kind == Kind::remote) {
        CHECK(planned.output.channel < plan.channels);
        destinations[planned.output.channel].emplace(planned.output.peer,
                                                     planned.action.pass == sw::Pass::forward);
      }
      // 4. The last passes are marked once for each chunk, and no pass of their kind follows.
      CHECK_FALSE((planned.action.pass == sw::Pass::forward && forwards_end[planned.chunk] > 0));
      CHECK_FALSE((sw::makes_weight_gradient(planned.action.pass) && gradients_end[planned.chunk] > 0));
      forwards_end[planned.chunk] += planned.ends_forwards ? 1 : 0;
      gradients_end[planned.chunk] += planned.position == sw::PassPosition::last ? 1 : 0;
    }
    for (const auto& [channel, each] : destinations)
      CHECK(each.size() == 1);
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      CHECK(forwards_end[chunk] == 1);
      CHECK(gradients_end[chunk] == 1);
    }
    // 5. With forward passes only, the order is by microbatch, then stage; it begins with those of the first
    // microbatches.
    const sw::detail::PipelinePlan forwards(
        sw::detail::PipelinePlan::forward_schedule(schedule, plan.microbatches), rank);
    for (int wanted = 0; wanted <= plan.microbatches; ++wanted) {
      const std::size_t count = forwards.first_steps(wanted).size();
      for (std::size_t i = 0; i < forwards.steps.size(); ++i)
        CHECK((forwards.steps[i].actions[0].action.microbatch < wanted) == (i < count));
    }
  }
}

} // namespace

TEST_CASE("the plans of all ranks agree on every message of every schedule") {
  std::size_t checked = 0;
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const int microbatches : {1, 2, 5, 8, 10})
      for (const std::string& name : sw::schedule_names())
        for (const int chunks : {2, 3}) {
          if (chunks == 3 && !name.starts_with("interleaved"))
            continue;
          try {
            check_plans(sw::make_schedule(name, ranks, microbatches, chunks));
            ++checked;
          } catch (const sw::InvalidArgument&) {
            // The schedule does not allow the numbers.
          }
        }
  CHECK(checked > 100);
}
