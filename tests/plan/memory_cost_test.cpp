// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <string>

using namespace shardwright;
using shardwright_test::Approx;

namespace {

ModelSpec known(std::string_view name) {
  const ModelSpec* const model = find_model(name);
  REQUIRE(model != nullptr);
  return *model;
}

double total(const StateBytes& bytes) { return bytes.parameters + bytes.gradients + bytes.optimizer; }

} // namespace

TEST_CASE("activations of a layer are those of arXiv 2205.05198, table 2", "[memory_cost]") {
  for (const char* name : {"gpt-22b", "gpt3-175b", "mt-nlg-530b", "gpt-1t"}) {
    const ModelSpec model = known(name);
    const double h = model.hidden, a = model.heads, s = 2048;
    for (const int b : {1, 4})
      for (const int tp : {1, 8}) {
        const RunSpec run{
            .sequences = 8, .sequence_length = 2048, .precision = Precision::fp16, .fused_attention = false};
        PlanConfiguration plan{.tp = tp, .microbatch = b, .sequence_parallel = false};
        const double sbh = s * b * h, t = tp;
        CAPTURE(name, b, tp);
        CHECK(activation_bytes_per_layer(model, run, plan) ==
              Approx(sbh * (10 + 24 / t + 5 * a * s / (h * t))).epsilon(0.02));
        plan.recomputation = Recompute::selective;
        CHECK(activation_bytes_per_layer(model, run, plan) == Approx(sbh * (10 + 24 / t)).epsilon(0.02));
        plan.sequence_parallel = true;
        CHECK(activation_bytes_per_layer(model, run, plan) == Approx(34 * sbh / t).epsilon(0.02));
        plan.recomputation = Recompute::none;
        CHECK(activation_bytes_per_layer(model, run, plan) ==
              Approx(sbh / t * (34 + 5 * a * s / h)).epsilon(0.02));
        plan.recomputation = Recompute::full;
        plan.sequence_parallel = false;
        CHECK(activation_bytes_per_layer(model, run, plan) == Approx(2 * sbh).epsilon(0.02));
      }
  }
}

TEST_CASE("figure 1 of arXiv 2205.05198: memory per GPU of the baseline and with each technique",
          "[memory_cost]") {
  // The figure stacks parameters with optimizer state, 16 bytes + 2 of gradients per parameter over t * p,
  // and first-stage activations: L/p layers of p microbatches (times 1 + (p-1)/(p v) interleaved).
  struct Case {
    const char* model;
    int pp, chunks, microbatch;
  };
  for (const Case& one : {Case{"gpt-22b", 1, 1, 4}, Case{"gpt3-175b", 8, 3, 1}, Case{"mt-nlg-530b", 35, 3, 1},
                          Case{"gpt-1t", 64, 1, 1}}) {
    const ModelSpec model = known(one.model);
    const ModelSize size = size_of(model);
    RunSpec run{.sequences = 64,
                .sequence_length = 2048,
                .precision = Precision::fp16,
                .optimizer = {2, 4, 12},
                .fused_attention = false};
    PlanConfiguration plan{.tp = 8,
                           .pp = one.pp,
                           .chunks = one.chunks,
                           .schedule = one.chunks > 1 ? PlanSchedule::interleaved : PlanSchedule::one_f_one_b,
                           .microbatch = one.microbatch,
                           .sequence_parallel = false};
    const double p = one.pp, v = one.chunks, h = model.hidden, s = 2048;
    const double kept = pipeline_shape(plan.schedule, plan.pp, 8 * plan.pp, plan.chunks, {}).kept;
    const double in_flight = p * (one.chunks > 1 ? 1 + (p - 1) / (p * v) : 1);
    CAPTURE(one.model);
    CHECK(kept == Approx(in_flight));
    const MemoryCost memory = memory_cost(model, size, run, plan, kept,
                                          detail::HeldParameters(model, size, plan), HostKind::separate);
    const double per_layer = s * one.microbatch * h * (10 + 24.0 / 8 + 5 * model.heads * s / (h * 8));
    CHECK(memory.activations == Approx(model.layers / p * in_flight * per_layer).epsilon(0.02));
    // 18 bytes per parameter of this rank: its layers, and the embedding on the first stage.
    const double parameters =
        (12 * h * h + 13 * h) * model.layers / (p * 8) + h * (model.vocabulary + 2048) / 8;
    CHECK(memory.parameters + memory.gradients + memory.optimizer == Approx(18 * parameters).epsilon(0.02));
  }
}

TEST_CASE("selective recomputation saves as much as the paper says", "[memory_cost]") {
  // arXiv 2205.05198, section 5: 70% of GPT-3's and 65% of MT-NLG's activations, for 2.7% and 1.6% of
  // operations.
  struct Case {
    const char* model;
    double saved, operations;
  };
  for (const Case& one : {Case{"gpt3-175b", 0.70, 0.027}, Case{"mt-nlg-530b", 0.65, 0.016}}) {
    const ModelSpec model = known(one.model);
    const RunSpec run{
        .sequences = 64, .sequence_length = 2048, .precision = Precision::fp16, .fused_attention = false};
    PlanConfiguration plan{.tp = 8, .dp = 8};
    const double all = activation_bytes_per_layer(model, run, plan);
    plan.recomputation = Recompute::selective;
    CAPTURE(one.model);
    CHECK(1 - activation_bytes_per_layer(model, run, plan) / all == Approx(one.saved).margin(0.005));
    const StepCost cost = evaluate(model, cluster_of(chip::a100_80, 64), run, plan);
    CHECK(cost.hfu(FlopsConvention::non_causal) / cost.mfu(FlopsConvention::non_causal) - 1 ==
          Approx(one.operations).margin(0.0005));
  }
}

TEST_CASE("a full recomputation repeats the layers, but no product that XLA drops", "[memory_cost]") {
  const ModelSpec model = known("llama-3.1-8b");
  const RunSpec run{.sequences = 64, .sequence_length = 8192};
  PlanConfiguration plan{.dp = 64, .zero_stage = 3};
  plan.recomputation = Recompute::full;
  const StepCost gpu = evaluate(model, cluster_of(chip::h100, 64), run, plan);
  const StepCost tpu = evaluate(model, cluster_of(chip::tpu_v5p, 64), run, plan);
  const double h = model.hidden, tokens = static_cast<double>(run.tokens());
  const StepFlops of_gpu = gpu.flops_of(FlopsConvention::causal),
                  of_tpu = tpu.flops_of(FlopsConvention::causal);
  CHECK(of_gpu.recomputed ==
        Approx(of_gpu.model / 3 - tokens * 2 * h * model.vocabulary)); // without the logits
  CHECK(of_gpu.recomputed - of_tpu.recomputed == Approx(tokens * 2 * model.layers * h * model.feed_forward));
  CHECK(tpu.hfu(FlopsConvention::causal) / tpu.mfu(FlopsConvention::causal) ==
        Approx(1 + of_tpu.recomputed / of_tpu.model));
}

TEST_CASE("states per parameter are those of ZeRO", "[memory_cost]") {
  // arXiv 1910.02054, figure 1: 16 bytes; 4 + 12/N; 2 + 14/N; 16/N with gradients of two bytes.
  const OptimizerSpec adam{2, 2, 12};
  for (const double n : {1.0, 8.0, 64.0}) {
    CHECK(total(state_bytes(adam, 0, n)) == Approx(16));
    CHECK(total(state_bytes(adam, 1, n)) == Approx(4 + 12 / n));
    CHECK(total(state_bytes(adam, 2, n)) == Approx(2 + 14 / n));
    CHECK(total(state_bytes(adam, 3, n)) == Approx(16 / n));
    CHECK(total(state_bytes({2, 4, 12}, 1, n)) == Approx(6 + 12 / n));
  }
}

TEST_CASE("experts and the other parameters are sharded over different ranks", "[memory_cost]") {
  const ModelSpec model = known("qwen3-235b-a22b");
  const ModelSize size = size_of(model);
  const RunSpec run{.sequences = 1024, .sequence_length = 4096};
  const PlanConfiguration plan{.ep = 32, .dp = 64, .zero_stage = 1};
  const MemoryCost memory =
      memory_cost(model, size, run, plan, 1, detail::HeldParameters(model, size, plan), HostKind::separate);
  CHECK(memory.parameters == Approx(2 * (size.dense() + size.routed / 32)).epsilon(0.001));
  CHECK(memory.gradients == Approx(2 * memory.parameters));
  CHECK(memory.optimizer == Approx(12 * (size.dense() / 64 + size.routed / 32 / 2)).epsilon(0.001));
}

TEST_CASE("ZeRO stages and shards never need more", "[memory_cost]") {
  for (const ModelSpec& model : model_catalogue) {
    const ModelSize size = size_of(model);
    const RunSpec run{.sequences = 512, .sequence_length = 2048};
    double last = 1e300;
    for (const int stage : {0, 1, 2, 3}) {
      const PlanConfiguration plan{.dp = 64, .zero_stage = stage};
      const MemoryCost memory = memory_cost(model, size, run, plan, 1,
                                            detail::HeldParameters(model, size, plan), HostKind::separate);
      INFO(std::string(model.name));
      CHECK(memory.total() - memory.buffers <= last);
      last = memory.total() - memory.buffers;
    }
  }
}
