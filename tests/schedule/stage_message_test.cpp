// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/dual_pipe.hpp>
#include <shardwright/schedule/interleaved.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>
#include <shardwright/schedule/zb_v.hpp>

#include <map>
#include <optional>
#include <tuple>
#include <vector>

using namespace shardwright;

TEST_CASE("activations go on and gradients come back", "[message]") {
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

TEST_CASE("every output of a schedule is the input of one action on the rank that it names", "[message]") {
  for (const Schedule& schedule : std::vector<Schedule>{
           make_schedule<Interleaved<3>>(4, 8), make_schedule<ZBV>(3, 7), make_schedule<DualPipe>(4, 10)}) {
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
