// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/plan/spec/recompute_names.hpp>

#include <string>

using namespace shardwright;
using shardwright_test::Approx;

TEST_CASE("lists of recomputed operations are read as people write them", "[recompute_names]") {
  const RecomputedOperations both{LayerOperation::norm, LayerOperation::activation};
  for (const char* list : {"norm,act", "norm, act", "act+norm", "layernorm, moe_act", "norm norm act"})
    CHECK(find_operations(list) == both);
  CHECK(operations_text(both) == "norm+act");
  for (const char* list : {"", " ", "none", "full", "norm,everything", "custom", "selective"})
    CHECK(!find_operations(list));
  RecomputedOperations all;
  for (int i = 0; i < layer_operations; ++i) {
    const auto one = static_cast<LayerOperation>(i);
    CHECK(find_operation(name_of(one)) == one);
    CHECK(!all.has(one));
    all.add(one);
    CHECK(all.has(one));
  }
  CHECK(find_operations(operations_text(all)) == all);
  CHECK(plan_text({.recomputation = Recompute::selective, .recomputed = both}) ==
        "microbatch=1 recomputation=norm+act");
  CHECK(plan_text({.recomputed = both}) == "microbatch=1");
  CHECK(recomputation_text({.recomputation = Recompute::selective}) == "selective");
  CHECK(recomputation_text({.recomputation = Recompute::full, .recomputed = both}) == "full");
}

TEST_CASE("recomputed operations take time and free memory", "[recompute_names]") {
  const RunSpec run{.sequences = 512, .sequence_length = 4096};
  const PlanConfiguration whole{.tp = 2, .ep = 32, .dp = 32, .zero_stage = 1};
  const ModelSpec v3 = *find_model("deepseek-v3"), llama = *find_model("llama-3.1-70b");
  for (const ModelSpec* model : {&v3, &llama}) {
    const ClusterSpec cluster = cluster_of(chip::h100, 64);
    PlanConfiguration plan = whole;
    if (!model->experts.used())
      plan.ep = 1;
    const StepCost kept = evaluate(*model, cluster, run, plan);
    plan.recomputation = Recompute::full;
    const StepCost full = evaluate(*model, cluster, run, plan);
    plan.recomputation = Recompute::selective;
    for (int i = 0; i < layer_operations; ++i) {
      const auto one = static_cast<LayerOperation>(i);
      const bool of_experts = one == LayerOperation::shared_experts || one == LayerOperation::experts ||
                              one == LayerOperation::latent_projections;
      if (of_experts && !model->experts.used())
        continue;
      plan.recomputed = {one};
      const StepCost cost = evaluate(*model, cluster, run, plan);
      CAPTURE(std::string(model->name), std::string(name_of(one)));
      CHECK(cost.step_seconds > kept.step_seconds);
      CHECK(cost.step_seconds < full.step_seconds);
      CHECK(cost.memory.activations < kept.memory.activations);
      CHECK(cost.memory.activations > full.memory.activations);
      CHECK(cost.causal_recomputed < full.causal_recomputed);
    }
  }
  // Recomputing all experts costs another forward pass of them and their all-to-alls, but no other traffic of
  // experts.
  PlanConfiguration plan = whole;
  const StepCost kept = evaluate(v3, cluster_of(chip::h100, 64), run, plan);
  plan.recomputation = Recompute::selective;
  plan.recomputed = {LayerOperation::experts};
  const StepCost cost = evaluate(v3, cluster_of(chip::h100, 64), run, plan);
  CHECK(cost.of(Traffic::expert).bytes == Approx(1.5 * kept.of(Traffic::expert).bytes));
  CHECK(cost.of(Traffic::tensor).bytes < 1.25 * kept.of(Traffic::tensor).bytes);
  CHECK(cost.attention_seconds == Approx(kept.attention_seconds));
}
