// SPDX-License-Identifier: Apache-2.0
//
// The cost of a published run's step, evaluated at compile time; prints its parts.
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <cstdio>

namespace sw = shardwright;

//! [evaluate]
// DeepSeek-V3 as trained according to its report (arXiv 2412.19437, section 3).
constexpr sw::ModelSpec model = *sw::find_model("deepseek-v3");
constexpr sw::ClusterSpec cluster = *sw::find_cluster("h800x2048");
constexpr sw::RunSpec run{.sequences = 15360,
                          .sequence_length = 4096,
                          .precision = sw::Precision::fp8,
                          .optimizer = {.parameter_bytes = 2, .gradient_bytes = 4, .state_bytes = 8}};
constexpr sw::PlanConfiguration plan{.pp = 16,
                                     .schedule = sw::PlanSchedule::dual_pipe,
                                     .ep = 64,
                                     .dp = 128,
                                     .zero_stage = 1,
                                     .recomputation = sw::Recompute::selective};

constexpr sw::StepCost cost = sw::evaluate(model, cluster, run, plan);
static_assert(cost.problem != sw::PlanProblem::schedule_rule && cost.bubble_seconds > 0);
static_assert(cost.mfu(sw::FlopsConvention::causal) < cost.hfu(sw::FlopsConvention::causal));
//! [evaluate]

int main() {
  std::printf("step %.1f s (%.1f to %.1f), %.0f tokens/s per chip\n", cost.step_seconds, cost.least_seconds,
              cost.most_seconds, cost.tokens_per_second_per_chip());
  const auto part = [](const char* name, double seconds) { std::printf("  %-22s %5.2f s\n", name, seconds); };
  part("products", cost.matmul_seconds);
  part("attention", cost.attention_seconds);
  part("memory-bound", cost.elementwise_seconds);
  part("launches, contention", cost.overhead_seconds);
  part("uneven stages", cost.imbalance_seconds);
  part("bubble", cost.bubble_seconds);
  part("experts' all-to-alls", cost.of(sw::Traffic::expert).exposed_seconds);
  part("other communication", cost.exposed_seconds() - cost.of(sw::Traffic::expert).exposed_seconds);
  part("optimizer and jitter", cost.optimizer_seconds + cost.straggler_seconds);
  std::printf(
      "memory %.1f GB of %.0f GB: parameters %.1f, gradients %.1f, optimizer %.1f, activations %.1f, logits and buffers %.1f\n",
      cost.memory.total() / 1e9, cluster.chip.memory_bytes / 1e9, cost.memory.parameters / 1e9,
      cost.memory.gradients / 1e9, cost.memory.optimizer / 1e9, cost.memory.activations / 1e9,
      (cost.memory.logits + cost.memory.buffers) / 1e9);
}
