// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

using namespace shardwright;

TEST_CASE("the timetable of a plan lasts as long as its passes and its bubble", "[plan_timetable]") {
  const ModelSpec model = *find_model("llama-3.1-70b");
  const ClusterSpec cluster = *cluster_of_name("h100x512");
  const RunSpec run{.sequences = 512, .sequence_length = 8192};
  for (const PlanSchedule schedule :
       {PlanSchedule::gpipe, PlanSchedule::one_f_one_b, PlanSchedule::interleaved, PlanSchedule::zb_h1,
        PlanSchedule::zb_h2, PlanSchedule::interleaved_zb, PlanSchedule::zb_v, PlanSchedule::dual_pipe,
        PlanSchedule::dual_pipe_v})
    for (const int pp : {2, 4, 8}) {
      PlanConfiguration plan{.tp = 8, .pp = pp, .schedule = schedule, .dp = 64 / pp, .zero_stage = 1};
      plan.chunks = takes_chunks(schedule) ? 2 : 1;
      const StepCost cost = evaluate(model, cluster, run, plan);
      const Timetable table = plan_timetable(plan, run, cost);
      const double passes = cost.passes.forward + cost.passes.input_gradient + cost.passes.weight_gradient;
      CAPTURE(schedule_name(schedule), pp);
      REQUIRE(table.ranks.size() == static_cast<std::size_t>(pp));
      REQUIRE(table.makespan() == Approx(8 * pp * passes + cost.bubble_seconds).epsilon(1e-9));
    }
}
