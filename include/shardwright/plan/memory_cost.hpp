// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Memory of the rank that needs most: states by ZeRO stage, activations by what is kept.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/model_size.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/pipeline_shape.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/step_cost.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes per parameter on a rank of `data_ranks`, by ZeRO stage: arXiv 1910.02054, section 5.
struct StateBytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;

  [[nodiscard]] constexpr double total() const noexcept { return parameters + gradients + optimizer; }
};
[[nodiscard]] constexpr StateBytes state_bytes(const OptimizerSpec& optimizer, int zero_stage,
                                               double data_ranks) noexcept {
  return {optimizer.parameter_bytes / (zero_stage >= 3 ? data_ranks : 1),
          optimizer.gradient_bytes / (zero_stage >= 2 ? data_ranks : 1),
          optimizer.state_bytes / (zero_stage >= 1 ? data_ranks : 1)};
}

/// @brief Bytes that one layer keeps of one microbatch, on one of tp * cp ranks.
///
/// The GPT form is arXiv 2205.05198, table 2: s b h (34 + 5 a s / h) without recomputation or parallelism,
/// (10 + 24/t + 5 a s / (h t)) with tensor parallelism, all of it over t with sequence parallelism; the last
/// term goes with selective recomputation or fused attention, and 2 s b h is left of a full one. A layer with
/// gated feed-forward or grouped queries keeps its own matrices' inputs: norms, residuals and attention's
/// output (10 s b h), queries, keys and values, and every branch of the feed-forward; with experts each
/// token's copies.
[[nodiscard]] constexpr double activation_bytes_per_layer(const ModelSpec& model, const RunSpec& run,
                                                          const PlanConfiguration& plan) noexcept {
  const double t = plan.tp, h = model.hidden;
  const double tokens =
      static_cast<double>(plan.microbatch) * static_cast<double>(run.sequence_length) / plan.cp;
  if (plan.recomputation == Recomputation::full)
    return 2 * tokens * h / (plan.sequence_parallel ? t : 1);
  const double outside =
      10 * h; // norms, residuals, dropout masks: split over tp only with sequence parallelism
  const double width =
      model.latent.used() ? model.latent.plain_width + model.latent.rotary_width : model.width_per_head();
  const double value_width = model.latent.used() ? model.latent.value_width : width;
  const double attention =
      2 * model.heads * (width + value_width) + 2 * model.key_value_heads * (width + value_width);
  const double branches = model.gated ? 3 : 2; // inputs of the activation, and its result
  double feed_forward = 2 * branches * model.feed_forward;
  if (model.experts.used()) {
    const double copies = model.experts.active;
    const double expert = 2 * branches * model.experts.width + 4 * h;
    const double share = static_cast<double>(model.expert_layers()) / model.layers;
    feed_forward =
        share * (copies * expert + 2 * branches * model.shared_expert_width()) + (1 - share) * feed_forward;
  }
  const bool keeps_scores = !run.fused_attention && plan.recomputation == Recomputation::none;
  const double scores = keeps_scores ? 5.0 * model.heads * static_cast<double>(run.sequence_length) : 0;
  return tokens * (outside / (plan.sequence_parallel ? t : 1) + (attention + feed_forward + scores) / t);
}

/// @brief Parameters on the fullest rank, before data-parallel sharding.
struct RankParameters {
  double dense = 0;   ///< Over tp and pp.
  double experts = 0; ///< Over ep and pp.
};
[[nodiscard]] constexpr RankParameters rank_parameters(const ModelSpec& model, const ModelSize& size,
                                                       const PlanConfiguration& plan) noexcept {
  const double p = plan.pp, t = plan.tp;
  const double layers = (model.layers + plan.pp - 1) / plan.pp;
  const double expert_layers = std::min(layers, static_cast<double>(model.expert_layers()));
  const double dense_layers = std::max(0.0, layers - expert_layers);
  // A stage at the end holds the embedding or the output matrix; one rank without a pipeline holds both.
  const double ends = p > 1 ? std::max(size.embedding, size.head) : size.embedding + size.head;
  const double layer = size.attention_per_layer / t + size.vectors_per_layer;
  const double copies = plan.schedule == PlanSchedule::dual_pipe && plan.pp > 1 ? 2 : 1;
  return {copies * (layers * layer + expert_layers * size.shared_per_layer / t +
                    dense_layers * size.dense_per_layer / t + ends / t),
          copies * expert_layers * model.experts.count * size.one_expert / plan.ep};
}

/// @brief Memory of a configuration; `kept` microbatches are in flight on the fullest rank.
[[nodiscard]] constexpr MemoryCost memory_cost(const ModelSpec& model, const ModelSize& size,
                                               const RunSpec& run, const PlanConfiguration& plan,
                                               double kept) noexcept {
  const RankParameters held = rank_parameters(model, size, plan);
  const double data_ranks = static_cast<double>(plan.dp) * plan.cp;
  const StateBytes dense = state_bytes(run.optimizer, plan.zero_stage, data_ranks);
  const StateBytes expert =
      state_bytes(run.optimizer, plan.zero_stage, static_cast<double>(plan.expert_dp()));
  MemoryCost memory;
  memory.parameters = held.dense * dense.parameters + held.experts * expert.parameters;
  memory.gradients = held.dense * dense.gradients + held.experts * expert.gradients;
  memory.optimizer = held.dense * dense.optimizer + held.experts * expert.optimizer;
  const double layers = (model.layers + plan.pp - 1) / plan.pp;
  const double layer = activation_bytes_per_layer(model, run, plan);
  memory.activations = kept * layers * layer;
  if (plan.recomputation == Recomputation::full) { // the layer that is being computed again
    PlanConfiguration once = plan;
    once.recomputation = Recomputation::selective;
    memory.activations += activation_bytes_per_layer(model, run, once);
  }
  const double tokens =
      static_cast<double>(plan.microbatch) * static_cast<double>(run.sequence_length) / plan.cp;
  memory.logits = 8 * tokens * model.vocabulary / plan.tp; // fp32, and their gradient
  const double largest_layer =
      (size.attention_per_layer + size.dense_per_layer + size.shared_per_layer) / plan.tp +
      model.experts.count * size.one_expert / plan.ep;
  // ZeRO-3 gathers a layer ahead of the one that computes, and reduces the gradient of the one before.
  if (plan.zero_stage >= 3)
    memory.parameters += 2 * run.optimizer.parameter_bytes * largest_layer;
  memory.buffers = 1.5e9 + (plan.zero_stage >= 2 ? run.optimizer.gradient_bytes * largest_layer : 0);
  return memory;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
