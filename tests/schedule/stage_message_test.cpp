// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

using namespace shardwright;

namespace {

/// Whether a schedule of two ranks ends if messages have no tags: they move in the order in which each rank
/// posts them as the runner does, over one channel or over one for each direction.
bool ends_by_order(const Schedule& schedule, bool channel_per_direction) {
  struct Posted {
    bool sends;
    StageMessage message;
  };
  struct Rank {
    std::array<std::deque<Posted>, 2> channels;
    std::vector<StageMessage> received;
    std::size_t step = 0;
    std::size_t posted = 0;
  };
  std::array<Rank, 2> ranks;
  const auto post = [&](Rank& rank, bool sends, const std::optional<StageMessage>& message) {
    if (message && message->is_sent())
      rank.channels[channel_per_direction && sends ? 1 : 0].push_back({sends, *message});
  };
  const auto go_on = [&](Rank& rank, std::span<const Step> steps) {
    const auto ahead = static_cast<std::size_t>(schedule.window().receive_ahead);
    for (; rank.posted < steps.size() && rank.posted <= rank.step + ahead; ++rank.posted)
      for (int i = 0; i < steps[rank.posted].size(); ++i)
        post(rank, false, input_of(schedule.placement(), steps[rank.posted][i]));
    if (rank.step == steps.size())
      return false;
    for (int i = 0; i < steps[rank.step].size(); ++i)
      if (const auto in = input_of(schedule.placement(), steps[rank.step][i]);
          in && in->is_sent() && std::count(rank.received.begin(), rank.received.end(), *in) == 0)
        return false;
    for (int i = 0; i < steps[rank.step].size(); ++i)
      post(rank, true, output_of(schedule.placement(), steps[rank.step][i]));
    ++rank.step;
    return true;
  };
  const auto move = [&](Rank& from, Rank& to) {
    std::deque<Posted>& out = from.channels[channel_per_direction ? 1 : 0];
    std::deque<Posted>& in = to.channels[0];
    if (out.empty() || in.empty() || !out.front().sends || in.front().sends ||
        out.front().message != in.front().message)
      return false;
    to.received.push_back(in.front().message);
    out.pop_front();
    in.pop_front();
    return true;
  };
  while (go_on(ranks[0], schedule.steps(0)) || go_on(ranks[1], schedule.steps(1)) ||
         move(ranks[0], ranks[1]) || move(ranks[1], ranks[0])) {
  }
  return ranks[0].step == schedule.steps(0).size() && ranks[1].step == schedule.steps(1).size();
}

} // namespace

TEST_CASE("activations go forward and gradients come back", "[message]") {
  constexpr StagePlacement placement = StagePlacement::v_shape(2);
  STATIC_REQUIRE(output_of(placement, {Pass::forward, 0, 5}) == StageMessage{false, 0, 5, 0, 1});
  STATIC_REQUIRE(input_of(placement, {Pass::input_gradient, 0, 5}) == StageMessage{true, 1, 5, 1, 0});
  STATIC_REQUIRE(output_of(placement, {Pass::backward, 3, 5})->to_stage() == 2);
  STATIC_REQUIRE(!output_of(placement, {Pass::forward, 1, 5})->is_sent());
  STATIC_REQUIRE(!input_of(placement, {Pass::forward, 0, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::forward, 3, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::input_gradient, 0, 5}));
  STATIC_REQUIRE(!input_of(placement, {Pass::backward, 3, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::weight_gradient, 1, 5}));
  STATIC_REQUIRE(!input_of(placement, {Pass::weight_gradient, 1, 5}));
}

// docs/explanation/communication.md gives these as the reason for the tags of messages over NCCL.
TEST_CASE("proven schedules need messages that are matched by tag", "[message]") {
  CHECK_FALSE(ends_by_order(make_schedule<OneFOneB>(2, 4), false));
  CHECK(ends_by_order(make_schedule<OneFOneB>(2, 4), true));
  CHECK_FALSE(ends_by_order(make_schedule<ZBV>(2, 4), true));
}

TEST_CASE("every output of a schedule is the input of one action on the rank that it names", "[message]") {
  for (const Schedule& schedule :
       std::vector<Schedule>{make_schedule<Interleaved<3>>(4, 8), make_schedule<InterleavedZB<2>>(3, 8),
                             make_schedule<ZBV>(3, 7), make_schedule<DualPipe>(4, 10)}) {
    std::map<std::tuple<bool, int, int>, std::vector<StageMessage>> made;
    std::map<std::tuple<bool, int, int>, std::vector<StageMessage>> taken;
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (const Step& step : schedule.steps(rank))
        for (int i = 0; i < step.size(); ++i) {
          if (const auto out = output_of(schedule.placement(), step[i])) {
            REQUIRE(out->from_rank == rank);
            REQUIRE(action_of(*out).stage == step[i].stage);
            made[{out->gradient, out->stage, out->microbatch}].push_back(*out);
          }
          if (const auto in = input_of(schedule.placement(), step[i])) {
            REQUIRE(in->to_rank == rank);
            REQUIRE(in->to_stage() == step[i].stage);
            taken[{in->gradient, in->stage, in->microbatch}].push_back(*in);
          }
        }
    REQUIRE(made == taken);
    REQUIRE(static_cast<int>(made.size()) == 2 * (schedule.stages() - 1) * schedule.microbatches());
    for (const auto& [key, messages] : made)
      REQUIRE(messages.size() == 1);
  }
}
