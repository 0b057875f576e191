// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Memory of the rank that needs the most: states by ZeRO stage, activations by the values that are
/// kept.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes of states.
struct StateBytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
};
/// @brief Of each parameter on a rank of `data_ranks`, by ZeRO stage: arXiv 1910.02054, section 5.
[[nodiscard]] constexpr StateBytes state_bytes(const OptimizerSpec& optimizer, int zero_stage,
                                               double data_ranks) noexcept {
  return {optimizer.parameter_bytes / (zero_stage >= 3 ? data_ranks : 1),
          optimizer.gradient_bytes / (zero_stage >= 2 ? data_ranks : 1),
          optimizer.state_bytes / (zero_stage >= 1 ? data_ranks : 1)};
}

namespace detail {

/// Tokens of a microbatch on one rank.
[[nodiscard]] constexpr double rank_tokens(const RunSpec& run, const PlanConfiguration& plan) noexcept {
  return static_cast<double>(plan.microbatch) * static_cast<double>(run.sequence_length) / plan.cp;
}

} // namespace detail

/// @brief Bytes that one layer keeps of one microbatch, on one of tp * cp ranks; for a hybrid model, the
/// average layer.
///
/// The GPT form is arXiv 2205.05198, table 2: s b h (34 + 5 a s / h) without recomputation or parallelism,
/// (10 + 24/t + 5 a s / (h t)) with tensor parallelism, all of it over t with sequence parallelism; the last
/// term vanishes with selective recomputation, and 2 s b h is left with full recomputation. With fused
/// attention, the scores and the masks of dropout are never kept; a selective recomputation then runs norms,
/// every other product and latent attention's up-projections again (arXiv 2412.19437, section 3.2.3). Other
/// layers keep the inputs of their own matrices: queries, keys and values, every branch of the feed-forward,
/// with experts each copy of a token. The vendors' kernels keep the inputs of a product in its low-precision
/// format. If the plan lists the operations that are run again, only their results are dropped.
[[nodiscard]] constexpr double activation_bytes_per_layer(const ModelSpec& model, const RunSpec& run,
                                                          const PlanConfiguration& plan) noexcept {
  const double t = plan.tp, h = model.hidden, split = plan.sequence_parallel ? t : 1;
  const double tokens = detail::rank_tokens(run, plan);
  if (plan.recomputation == Recompute::full)
    return 2 * tokens * h / split;
  const bool selective = plan.recomputation == Recompute::selective;
  const RecomputedOperations again = selective ? plan.recomputed : RecomputedOperations{};
  const bool usual = selective && again.empty();
  const bool narrow =
      run.stack == KernelStack::tuned && (run.precision == Precision::fp8 || run.precision == Precision::fp4);
  const double input = narrow ? 1 : 2;                      // bytes of an element that a product reads
  const double norms = run.fused_attention ? 2 * input : 4; // both of them
  const double of_stream =
      (run.fused_attention ? 4 + norms : 10) - (again.has(LayerOperation::norm) ? norms : 0) -
      (again.has(LayerOperation::output_projection) ? 2 : 0) - (usual && run.fused_attention ? input : 0);
  const double outside = of_stream * (model.parallel_block ? 0.5 : model.branch_share()); // one norm, not two
  const bool policy = run.fused_attention && usual; // norms, latents' products, activations, other products
  const LatentAttention& latent = model.latent;
  const double width = model.key_width(), value_width = model.value_width();
  const bool attends = again.has(LayerOperation::attention);
  const bool expands = policy || again.has(LayerOperation::latent_projections);
  const double queries = again.has(LayerOperation::qkv_projections)
                             ? 0
                             : 2.0 * (model.heads * width + model.key_value_heads * (width + value_width));
  const double attention = latent.used() && expands
                               ? input * (latent.query_rank + latent.key_value_rank + latent.rotary_width +
                                          (attends ? 0 : model.heads * value_width))
                               : queries + (attends ? 0 : 2.0 * model.heads * value_width);
  const double branches = model.gated ? 2 : 1; // the input of the activation function
  const double kept = policy ? 2 : 2 * branches + (again.has(LayerOperation::activation) ? 0 : input);
  const double up = again.has(LayerOperation::up_projections) ? 2 * branches : 0;
  double feed_forward = again.has(LayerOperation::feed_forward) ? 0 : (kept - up) * model.feed_forward;
  if (model.experts.used()) {
    const double expert = kept * model.experts.width + (policy ? input : 2 + input) * model.routed_width();
    const double share = static_cast<double>(model.expert_layers()) / model.feed_forwards();
    const bool all = again.has(LayerOperation::experts);
    const double shared =
        all || again.has(LayerOperation::shared_experts) ? 0 : kept * model.shared_expert_width();
    feed_forward = share * ((all ? 0 : model.experts.active * run.expert_capacity * expert) + shared) +
                   (1 - share) * feed_forward;
  }
  const bool keeps_scores = !run.fused_attention && !usual && !attends;
  const double scores = keeps_scores ? 5.0 * model.heads * static_cast<double>(run.sequence_length) : 0;
  // A state space keeps the inputs and results of its two products; its fused scan runs the rest again.
  const double scanned = 2 * model.state_space.input_width() + 2 * model.state_space.width();
  const double block = outside * h / split + (model.attention_share() * (attention + scores) +
                                              model.state_space_share() * scanned + feed_forward) /
                                                 t;
  return tokens * block * model.feed_forwards() / model.stacked_layers();
}

namespace detail {

/// Stages that a rank holds of the same part of the model: DualPipe's two directions, on two ranks
/// each.
[[nodiscard]] constexpr double parameter_copies(const PlanConfiguration& plan) noexcept {
  return plan.schedule == PlanSchedule::dual_pipe && plan.pp > 1 ? 2 : 1;
}

/// Returns whether the rank with the embedding has the output matrix, too: in a V, it has the first and the
/// last stage, and in DualPipe the first of one direction and the last of the other.
[[nodiscard]] constexpr bool has_both_ends(const PlanConfiguration& plan) noexcept {
  return plan.pp == 1 || plan.schedule == PlanSchedule::zb_v || plan.schedule == PlanSchedule::dual_pipe ||
         plan.schedule == PlanSchedule::dual_pipe_v;
}

/// Parameters on a rank, before data-parallel sharding.
struct RankParameters {
  double dense = 0;   ///< Over tp and pp.
  double experts = 0; ///< Over ep and pp.
  double layers = 0;  ///< Of the stage, each of which has messages of its own.

  [[nodiscard]] constexpr double total() const noexcept { return dense + experts; }
};

/// The part of the model that a rank of the pipeline holds.
struct StageShare {
  int layers = 0;
  bool ends = true; ///< The embedding or the output matrix; both if there is one stage.
};

/// The stages that need the most: those at the ends, and those between them.
///
/// If the layers do not divide evenly, the stages at the ends, which hold the embedding and the output
/// matrix, are among those with one layer less, as in the pipelines of arXiv 2407.21783, section 3.3.2, if
/// there are at least two of these.
[[nodiscard]] constexpr std::array<StageShare, 2> fullest_stages(const ModelSpec& model,
                                                                 const PlanConfiguration& plan) noexcept {
  const int layers = model.stacked_layers();
  const int less = layers / plan.pp, missing = plan.pp - layers % plan.pp;
  const int more = layers % plan.pp == 0 ? less : less + 1;
  return {{{missing >= 2 ? less : more, true}, {plan.pp > 2 ? more : 0, false}}};
}

[[nodiscard]] constexpr RankParameters rank_parameters(const ModelSpec& model, const ModelSize& size,
                                                       const PlanConfiguration& plan,
                                                       const StageShare& stage) noexcept {
  const double t = plan.tp, layers = stage.layers;
  const bool mixed = model.state_space.used(); // every stage has its share of each kind of layer
  const double part = layers / model.stacked_layers();
  const double expert_layers =
      mixed ? part * model.expert_layers() : std::min(layers, static_cast<double>(model.expert_layers()));
  const double dense_layers = mixed ? part * model.dense_layers() : std::max(0.0, layers - expert_layers);
  // Schedules in a V have both ends on one rank, so multi-token prediction, which reads the embedding on the
  // last stage, finds it there (arXiv 2412.19437, section 3.2.3); DualPipe has the two ends of a direction on
  // each of two ranks.
  const double copies = parameter_copies(plan);
  const double last = size.head + size.prediction;
  const double ends =
      !stage.ends ? 0
      : has_both_ends(plan)
          ? (size.embedding + last) / copies
          : std::max(size.embedding, last + (model.prediction_layers > 0 ? size.embedding : 0));
  const double branches = mixed ? part * (model.attention_layers() * size.attention_per_layer +
                                          model.state_space.layers * size.state_space_per_layer)
                                : layers * size.attention_per_layer;
  return {copies *
              (branches / t + layers * size.vectors_per_layer + expert_layers * size.shared_per_layer / t +
               dense_layers * size.dense_per_layer / t + ends / t),
          copies * expert_layers * model.experts.count * size.one_expert / plan.ep, layers};
}

/// The stages that need the most, with the parameters of a rank in each.
struct HeldParameters {
  std::array<StageShare, 2> stages{};
  std::array<RankParameters, 2> held{};

  constexpr HeldParameters() = default;
  constexpr HeldParameters(const ModelSpec& model, const ModelSize& size,
                           const PlanConfiguration& plan) noexcept
      : stages(fullest_stages(model, plan)), held{rank_parameters(model, size, plan, stages[0]),
                                                  rank_parameters(model, size, plan, stages[1])} {}

  /// Those of the rank that has the most.
  [[nodiscard]] constexpr const RankParameters& most() const noexcept {
    return held[1].total() > held[0].total() ? held[1] : held[0];
  }
};

/// Bytes of states for the parameters of a rank.
[[nodiscard]] constexpr StateBytes rank_states(const RunSpec& run, const PlanConfiguration& plan,
                                               const RankParameters& held, double layer_parameters,
                                               bool compiled) noexcept {
  const bool own_shards =
      plan.zero_stage < 3 || plan.pp > 1 || (run.stack == KernelStack::tuned && !compiled);
  const StateBytes dense = state_bytes(run.optimizer, plan.zero_stage, plan.data_shards());
  const StateBytes expert =
      state_bytes(run.optimizer, plan.zero_stage, static_cast<double>(plan.expert_dp()));
  StateBytes out{own_shards ? held.dense * dense.parameters + held.experts * expert.parameters : 0,
                 held.dense * dense.gradients + held.experts * expert.gradients,
                 held.dense * dense.optimizer + held.experts * expert.optimizer};
  if (plan.zero_stage >= 1) // both ranks that hold a stage share its states
    out.optimizer /= parameter_copies(plan);
  if (plan.zero_stage >= 3 && plan.pp > 1) {
    out.parameters += run.optimizer.parameter_bytes * (held.dense + held.experts);
    out.gradients += run.optimizer.gradient_bytes * (held.dense + held.experts);
  } else if (plan.zero_stage >= 3) {
    out.parameters += (compiled ? 1 : 2) * run.optimizer.parameter_bytes * layer_parameters;
  }
  return out;
}

/// Bytes of the memory in which a rank computes a layer.
[[nodiscard]] constexpr double working_bytes(const ModelSpec& model, const RunSpec& run,
                                             const PlanConfiguration& plan, double kept_of_layer) noexcept {
  double working = 0;
  const bool listed = plan.recomputation == Recompute::selective && !plan.recomputed.empty();
  if (plan.recomputation == Recompute::full || listed) {
    PlanConfiguration once = plan;
    once.recomputation = Recompute::none;
    working = activation_bytes_per_layer(model, run, once) - (listed ? kept_of_layer : 0);
  }
  const double tokens = rank_tokens(run, plan), h = model.hidden;
  if (plan.tp > 1)
    working += 12 * tokens * h;
  if (plan.cp > 1)
    working += 6 * plan.cp * tokens * h / plan.tp;
  return working;
}

} // namespace detail

/// @brief Memory of a configuration, on the rank that needs the most; `kept` microbatches are in flight on
/// the fullest rank.
///
/// In addition to the values that are kept: the layer being computed, with the whole sequence that tensor
/// parallelism gathers and the partial results of context parallelism; logits in 8 bytes with the vendors'
/// fused loss, in 14 with a framework's own loss (bf16 and fp32 copies, their gradients), unless the run says
/// how many; ZeRO-3 gathers a layer ahead, and under a pipeline keeps all parameters and gradients of the
/// step whole; 1.5 GB of runtime and communication buffers. Frameworks whose ZeRO-3 shards the fp32
/// parameters have no shards of other copies, unless there is a pipeline. A program that XLA compiled as a
/// whole gathers the matrices of a layer one after the other, keeps logits and the gradients that it reduces
/// in bf16, and needs 0.3 GB itself.
/// @param held of the stages that may need the most memory
/// @param host that launches the kernels
[[nodiscard]] constexpr MemoryCost memory_cost(const ModelSpec& model, const ModelSize& size,
                                               const RunSpec& run, const PlanConfiguration& plan, double kept,
                                               const detail::HeldParameters& held, HostKind host) noexcept {
  const bool compiled = host == HostKind::compiled;
  const double layer_parameters =
      (size.attention_per_layer + std::max(size.dense_per_layer, size.shared_per_layer)) / plan.tp +
      model.experts.count * size.one_expert / plan.ep;
  const double of_layer = activation_bytes_per_layer(model, run, plan);
  const int most_layers =
      (model.stacked_layers() + plan.pp - 1) / plan.pp; // a stage between the ends may keep them
  const bool offloads = run.offloads_layers && plan.recomputation != Recompute::none;
  const double usual = compiled ? 2 : run.stack == KernelStack::tuned ? 8 : 14;
  const double logits = (run.logit_bytes > 0 ? run.logit_bytes : usual) * detail::rank_tokens(run, plan) *
                        (1 + model.prediction_layers) * model.vocabulary / plan.tp;
  const double reduced = compiled ? run.optimizer.parameter_bytes : run.optimizer.gradient_bytes;
  MemoryCost common;
  common.activations = (offloads ? std::min(2.0, kept * most_layers) : kept * most_layers) * of_layer;
  common.buffers = (compiled ? 0.3e9 : 1.5e9) + detail::working_bytes(model, run, plan, of_layer) +
                   (plan.zero_stage >= 2 ? reduced * layer_parameters : 0);
  const auto memory_of = [&](std::size_t stage) {
    const StateBytes states = detail::rank_states(run, plan, held.held[stage], layer_parameters, compiled);
    MemoryCost memory = common;
    memory.parameters = states.parameters;
    memory.gradients = states.gradients;
    memory.optimizer = states.optimizer;
    memory.logits = held.stages[stage].ends ? logits : 0;
    return memory;
  };
  const MemoryCost first = memory_of(0);
  if (held.stages[1].layers <= held.stages[0].layers)
    return first;
  const MemoryCost other = memory_of(1);
  return other.total() > first.total() ? other : first;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
