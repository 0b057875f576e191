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
    CHECK(find_operations(name_of(one)) == RecomputedOperations{one});
    CHECK(!all.has(one));
    all.add({one});
    CHECK(all.has(one));
  }
  CHECK(find_operations(operations_text(all)) == all);
  CHECK(plan_text({.recomputation = Recompute::selective, .recomputed = both}) ==
        "microbatch=1 recomputation=norm+act");
  CHECK(plan_text({.recomputed = both}) == "microbatch=1");
  CHECK(recomputation_text({.recomputation = Recompute::selective}) == "selective");
  CHECK(recomputation_text({.recomputation = Recompute::full, .recomputed = both}) == "full");
}

TEST_CASE("a policy runs again what it does not keep", "[recompute_names]") {
  using enum LayerOperation;
  const RecomputedOperations all{attention,          norm,          activation,
                                 latent_projections, experts,       qkv_projections,
                                 output_projection,  up_projections};
  CHECK(find_kept("decoder_layer_input") == all);
  CHECK(find_kept("decoder_layer_input+key_proj+value_proj+mlpwo") == all);
  CHECK(find_policy("minimal") == RecomputedOperations{attention, norm, activation});
  CHECK(find_policy("minimal_with_context") == RecomputedOperations{norm, activation});
  CHECK(find_policy("save_dot_except_mlp") ==
        RecomputedOperations{attention, norm, activation, experts, up_projections});
  CHECK(find_policy("keep query_proj, context") ==
        RecomputedOperations{norm, activation, experts, output_projection, up_projections});
  CHECK(find_policy("save_qkv_proj") == find_policy("qkv_proj_offloaded"));
  CHECK(is_offloading("qkv_proj_offloaded"));
  CHECK_FALSE(is_offloading("save_qkv_proj"));
  for (const char* unknown : {"", "keep ", "keep everything", "custom", "query_proj"})
    CHECK(!find_policy(unknown));
  // The less is kept, the longer a step takes and the less memory it needs; XLA never runs a layer's last
  // product again, so that a policy that keeps nothing costs as much as a full recomputation.
  const ModelSpec llama = *find_model("llama-3.1-70b");
  const ClusterSpec cluster = cluster_of(chip::tpu_v5p, 64);
  const RunSpec run{.sequences = 128, .sequence_length = 8192};
  PlanConfiguration plan{.dp = 64, .zero_stage = 3, .recomputation = Recompute::selective};
  StepCost before;
  for (const char* policy : {"minimal_with_context", "minimal", "save_dot_except_mlp", "save_qkv_proj",
                             "keep decoder_layer_input"}) {
    plan.recomputed = *find_policy(policy);
    const StepCost cost = evaluate(llama, cluster, run, plan);
    CAPTURE(policy);
    CHECK(cost.step_seconds > before.step_seconds);
    if (before.step_seconds > 0)
      CHECK(cost.memory.activations < before.memory.activations);
    before = cost;
  }
  plan.recomputation = Recompute::full;
  CHECK(evaluate(llama, cluster, run, plan).matmul_seconds == Approx(before.matmul_seconds));
  CHECK(evaluate(llama, cluster_of(chip::h100, 64), run, plan).matmul_seconds >
        1.05 * before.matmul_seconds * chip::tpu_v5p.peak_bf16 / chip::h100.peak_bf16);
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
      CHECK(cost.flops_of(FlopsConvention::causal).recomputed <
            full.flops_of(FlopsConvention::causal).recomputed);
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
