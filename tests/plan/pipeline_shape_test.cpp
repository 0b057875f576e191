// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>

#include <algorithm>
#include <array>
#include <utility>

using namespace shardwright;
using shardwright_test::Approx;
using shardwright_test::ContainsSubstring;

namespace {

/// Forward, input gradient and weight gradient of a stage: equal, with attention, with full recomputation.
constexpr std::array<PassCosts, 6> stage_costs{
    {{100, 100, 100}, {100, 110, 80}, {100, 120, 100}, {100, 150, 50}, {100, 200, 100}, {100, 210, 80}}};

/// Every legal number of microbatches up to 40 on 1 to 12 ranks: the closed form agrees with the proof.
template <class Policy> void compare_with_proofs(PlanSchedule schedule, int chunks) {
  int legal = 0;
  for (int ranks = 1; ranks <= 12; ++ranks)
    for (int microbatches = 1; microbatches <= 40; ++microbatches) {
      REQUIRE(rule_of(schedule, ranks, microbatches).holds() ==
              schedule_rule<Policy>(ranks, microbatches).holds());
      if (!schedule_rule<Policy>(ranks, microbatches).holds() || ranks == 1)
        continue;
      ++legal;
      for (const PassCosts& stage : stage_costs) {
        const PassCosts rank{chunks * stage.forward, chunks * stage.input_gradient,
                             chunks * stage.weight_gradient};
        const PipelineShape shape = pipeline_shape(schedule, ranks, microbatches, chunks, rank);
        const Proof proof = PipelineSchedule<Policy>::prove(ranks, microbatches, stage);
        CAPTURE(ranks, microbatches, stage.input_gradient, stage.weight_gradient);
        REQUIRE(shape.bubble == Approx(proof.bubble));
        REQUIRE(shape.kept * chunks == Approx(proof.peak_in_flight));
      }
      PassCosts slow = stage_costs[1];
      slow.send = 5;
      const double added = PipelineSchedule<Policy>::prove(ranks, microbatches, slow).makespan -
                           PipelineSchedule<Policy>::prove(ranks, microbatches, stage_costs[1]).makespan;
      const double hops = pipeline_shape(schedule, ranks, microbatches, chunks, stage_costs[1]).hops;
      CAPTURE(ranks, microbatches, added);
      REQUIRE(hops * slow.send >= added - 1e-9);
    }
  REQUIRE(legal > 50);
}

} // namespace

TEST_CASE("the closed form of a schedule agrees with its proof", "[pipeline_shape]") {
  SECTION("GPipe") { compare_with_proofs<GPipe>(PlanSchedule::gpipe, 1); }
  SECTION("1F1B") { compare_with_proofs<OneFOneB>(PlanSchedule::one_f_one_b, 1); }
  SECTION("interleaved, 2 chunks") { compare_with_proofs<Interleaved<2>>(PlanSchedule::interleaved, 2); }
  SECTION("interleaved, 5 chunks") { compare_with_proofs<Interleaved<5>>(PlanSchedule::interleaved, 5); }
  SECTION("ZB-H1") { compare_with_proofs<ZBH1>(PlanSchedule::zb_h1, 1); }
  SECTION("ZB-H2") { compare_with_proofs<ZBH2>(PlanSchedule::zb_h2, 1); }
  SECTION("interleaved zero bubble, 2 chunks") {
    compare_with_proofs<InterleavedZB<2>>(PlanSchedule::interleaved_zb, 2);
  }
  SECTION("interleaved zero bubble, 4 chunks") {
    compare_with_proofs<InterleavedZB<4>>(PlanSchedule::interleaved_zb, 4);
  }
  SECTION("ZB-V") { compare_with_proofs<ZBV>(PlanSchedule::zb_v, 2); }
  SECTION("DualPipe") { compare_with_proofs<DualPipe>(PlanSchedule::dual_pipe, 1); }
  SECTION("DualPipeV") { compare_with_proofs<DualPipeV>(PlanSchedule::dual_pipe_v, 2); }
}

TEST_CASE("the closed form holds for up to twenty stages per rank", "[pipeline_shape]") {
  for (const PlanSchedule schedule : {PlanSchedule::interleaved, PlanSchedule::interleaved_zb})
    for (const int chunks : {3, 7, 17, most_chunks})
      for (const auto& [ranks, microbatches] : {std::pair(4, 3), std::pair(4, 8), std::pair(7, 14)}) {
        const Schedule named = make_schedule(schedule_name(schedule), ranks, microbatches, chunks);
        CAPTURE(named.name(), chunks, ranks, microbatches);
        REQUIRE(named.stages() == ranks * chunks);
        const PassCosts stage{100, 120, 80};
        const Proof proof = prove(named, stage);
        REQUIRE(proof.holds());
        const PipelineShape shape = pipeline_shape(
            schedule, ranks, microbatches, chunks,
            {chunks * stage.forward, chunks * stage.input_gradient, chunks * stage.weight_gradient});
        REQUIRE(shape.bubble == Approx(proof.bubble));
        REQUIRE(shape.kept * chunks == Approx(proof.peak_in_flight));
      }
  // The same steps, whether the compiler knows the number or not.
  const Schedule named = make_schedule("interleaved", 4, 8, 5), known = make_schedule<Interleaved<5>>(4, 8);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(std::equal(named.steps(rank).begin(), named.steps(rank).end(), known.steps(rank).begin(),
                     known.steps(rank).end()));
  CHECK_THROWS_WITH(make_schedule("interleaved", 4, 8, 21),
                    ContainsSubstring("there must be 2 to 20 chunks, but there are 21"));
  CHECK_THROWS_AS(make_schedule("interleavedzb", 4, 8, 1), InvalidArgument);
}

TEST_CASE("a pipeline of one rank has no bubble", "[pipeline_shape]") {
  STATIC_REQUIRE(pipeline_shape(PlanSchedule::one_f_one_b, 1, 8, 1, {}).bubble == 0);
  STATIC_REQUIRE(pipeline_shape(PlanSchedule::one_f_one_b, 4, 8, 1, {1, 1, 1}).bubble == 9);
}
