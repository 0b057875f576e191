// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What one step of a configuration costs: memory, time and its parts, in well under a microsecond.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/calibration.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/collective_time.hpp>
#include <shardwright/plan/compute_time.hpp>
#include <shardwright/plan/memory_cost.hpp>
#include <shardwright/plan/model_size.hpp>
#include <shardwright/plan/model_spec.hpp>
#include <shardwright/plan/pipeline_shape.hpp>
#include <shardwright/plan/plan_configuration.hpp>
#include <shardwright/plan/run_spec.hpp>
#include <shardwright/plan/step_cost.hpp>

#include <algorithm>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The first rule that a configuration breaks, memory aside; `none` where it may run.
[[nodiscard]] constexpr PlanProblem problem_of(const ModelSpec& model, const ClusterSpec& cluster,
                                               const RunSpec& run, const PlanConfiguration& plan) {
  const bool extents = plan.tp > 0 && plan.cp > 0 && plan.pp > 0 && plan.ep > 0 && plan.dp > 0 &&
                       plan.microbatch > 0 && plan.chunks > 0;
  const bool dimensions = model.layers > 0 && model.hidden > 0 && model.heads > 0 && model.vocabulary > 0 &&
                          model.key_value_heads > 0 && cluster.chips() > 0 && cluster.chip.peak_bf16 > 0 &&
                          cluster.chip.memory_bandwidth > 0 && run.sequences > 0 && run.sequence_length > 0;
  if (!extents || !dimensions)
    return PlanProblem::empty_input;
  if (plan.chips() != cluster.chips())
    return PlanProblem::chips_differ;
  const std::int64_t at_once = static_cast<std::int64_t>(plan.dp) * plan.microbatch;
  if (run.sequences % at_once != 0)
    return PlanProblem::batch_not_divisible;
  if (model.heads % plan.tp != 0)
    return PlanProblem::heads_not_divisible;
  if (run.sequence_length % (static_cast<std::int64_t>(plan.cp) * (plan.sequence_parallel ? plan.tp : 1)) !=
      0)
    return PlanProblem::sequence_not_divisible;
  if (model.layers < plan.pp * chunks_of(plan.schedule, plan.chunks))
    return PlanProblem::layers_too_few;
  if (plan.ep > 1 && (model.experts.count % plan.ep != 0 ||
                      (static_cast<std::int64_t>(plan.tp) * plan.cp * plan.dp) % plan.ep != 0))
    return PlanProblem::experts_not_divisible;
  if (!rule_of(plan.schedule, plan.pp, static_cast<int>(run.sequences / at_once)).holds())
    return PlanProblem::schedule_rule;
  return PlanProblem::none;
}

namespace detail {

/// Sums of one rank's parts over its layers and one microbatch, forward.
struct StagePass {
  ForwardSeconds forward{};
  double tensor = 0, context = 0, expert = 0; ///< Seconds on the wire.
  double overhead = 0;                        ///< Of both passes.
};

} // namespace detail

/// @brief Cost of one step.
///
/// Time is m microbatches of the heaviest stage, the bubble of the schedule, what communication is exposed,
/// the optimizer, and jitter; docs/explanation/planner.md derives every term. Nothing is allocated.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan,
                                          const Calibration& calibration) {
  StepCost cost;
  cost.problem = problem_of(model, cluster, run, plan);
  if (cost.problem == PlanProblem::empty_input)
    return cost;
  const SharedCalibration& shared = calibration.shared;
  const ModelSize size = size_of(model);
  const double s = static_cast<double>(run.sequence_length), h = model.hidden;
  const double t = plan.tp, p = plan.pp;
  const double tokens = plan.microbatch * s / plan.cp; // of a microbatch on one rank
  const double microbatches =
      std::max(1.0, static_cast<double>(run.sequences) / (static_cast<double>(plan.dp) * plan.microbatch));
  const int chunks = chunks_of(plan.schedule, plan.chunks);
  const double expert_layers = model.expert_layers(), dense_layers = model.layers - expert_layers;

  // Links of every axis; the mesh is, inner to outer, tp, cp, dp, pp.
  const LinkEfficiency links{shared.scale_up, shared.scale_out};
  const GroupLinks tensor = links_of(cluster, {t, 1}, links);
  const GroupLinks context = links_of(cluster, {static_cast<double>(plan.cp), t}, links);
  const GroupLinks expert = links_of(cluster, {static_cast<double>(plan.ep), 1}, links);
  const double data_ranks = static_cast<double>(plan.dp) * plan.cp;
  const GroupLinks data = links_of(cluster, {data_ranks, t}, links);
  const double expert_data_ranks = static_cast<double>(plan.expert_dp());
  const GroupLinks expert_data = links_of(cluster, {expert_data_ranks, static_cast<double>(plan.ep)}, links);

  const RankComputation computed = rank_computation(model, cluster, run, plan, calibration);

  // Traffic of one layer and microbatch, forward; the backward pass has as much again.
  const double residual = 2 * tokens * h;
  const double tensor_layer = t > 1 ? 4 * gather_seconds(tensor, residual) : 0;
  const double key_values = 2 * tokens * plan.cp * model.key_value_heads * model.width_per_head() * 2 / t;
  const double context_layer = plan.cp > 1 ? gather_seconds(context, key_values) : 0;
  const double routed = residual / t * model.experts.active;
  const double expert_layer_traffic =
      plan.ep > 1 ? 2 * all_to_all_seconds(expert, routed, std::max(1, model.experts.active)) : 0;

  const bool full = plan.recomputation == Recomputation::full;
  const double again = full ? 1 : 0;
  const double attention_again = plan.recomputation == Recomputation::none ? 0 : 1;

  // Per microbatch, of all layers of the model over p; then of the heaviest stage.
  const auto layers_share = [&](double share_dense, double share_expert, double share_head) {
    detail::StagePass pass;
    const auto add = [](ForwardSeconds& to, const ForwardSeconds& one, double times) {
      to.matmul += one.matmul * times;
      to.attention += one.attention * times;
      to.elementwise += one.elementwise * times;
    };
    add(pass.forward, computed.dense_layer, share_dense);
    add(pass.forward, computed.expert_layer, share_expert);
    add(pass.forward, computed.head, share_head);
    const double layers = share_dense + share_expert;
    pass.tensor = layers * tensor_layer;
    pass.context = layers * context_layer;
    pass.expert = share_expert * expert_layer_traffic;
    pass.overhead = (layers * shared.layer_seconds + share_expert * shared.expert_seconds) * (3 + again) / 3;
    return pass;
  };
  const detail::StagePass mean = layers_share(dense_layers / p, expert_layers / p, 1 / p);

  const auto passes_of = [&](const detail::StagePass& pass) {
    PassCosts costs;
    const double exposed = pass.tensor * shared.tensor_exposed + pass.context * shared.context_exposed +
                           pass.expert * shared.expert_exposed;
    const ForwardSeconds& f = pass.forward;
    costs.forward = f.matmul + f.attention + f.elementwise + exposed + pass.overhead / 3;
    costs.weight_gradient = f.matmul;
    // Fused attention computes its scores again: five products instead of four.
    costs.input_gradient = f.matmul * (1 + again) + f.attention * (2.5 + attention_again) +
                           f.elementwise * (2 + again) + exposed * (1 + again) + pass.overhead * 2 / 3;
    return costs;
  };
  const PassCosts passes = passes_of(mean);
  const double pass_seconds = passes.forward + passes.input_gradient + passes.weight_gradient;
  const PipelineShape shape =
      pipeline_shape(plan.schedule, plan.pp, static_cast<int>(microbatches), chunks, passes);

  double heaviest = pass_seconds;
  if (plan.pp > 1) { // the fullest stage, or the last one, which has the head beside its layers
    const double most = (model.layers + plan.pp - 1) / plan.pp;
    const double ratio_expert = expert_layers / model.layers;
    const auto seconds_of = [&](double layers, double head) {
      const PassCosts c = passes_of(layers_share(layers * (1 - ratio_expert), layers * ratio_expert, head));
      return c.forward + c.input_gradient + c.weight_gradient;
    };
    const double last = model.layers / plan.pp;
    heaviest = std::max({pass_seconds, seconds_of(most, 0), seconds_of(last, 1)});
  }

  // Sums over the step.
  const ForwardSeconds& f = mean.forward;
  cost.matmul_seconds = microbatches * f.matmul * (3 + again);
  cost.attention_seconds = microbatches * f.attention * (3.5 + attention_again);
  cost.elementwise_seconds = microbatches * f.elementwise * (3 + again);
  cost.overhead_seconds = microbatches * mean.overhead;
  cost.imbalance_seconds = microbatches * (heaviest - pass_seconds);
  cost.bubble_seconds = shape.bubble;
  cost.passes = passes;

  const auto per_layer_traffic = [&](Traffic kind, double forward, double bytes, double exposed) {
    TrafficCost& one = cost.traffic[static_cast<std::size_t>(kind)];
    one.bytes = microbatches * (2 + again) * bytes;
    one.seconds = microbatches * (2 + again) * forward;
    one.exposed_seconds = one.seconds * exposed;
  };
  const double layers_here = model.layers / p;
  per_layer_traffic(Traffic::tensor, mean.tensor, layers_here * 4 * residual * (t - 1) / t,
                    shared.tensor_exposed);
  per_layer_traffic(Traffic::context, mean.context, layers_here * key_values * (plan.cp - 1) / plan.cp,
                    shared.context_exposed);
  per_layer_traffic(Traffic::expert, mean.expert, expert_layers / p * 2 * routed * (plan.ep - 1) / plan.ep,
                    shared.expert_exposed);

  if (plan.pp > 1) { // neighbouring stages are a stage's ranks apart
    const double apart = t * plan.cp * plan.dp;
    double bandwidth = 0, latency = 0;
    for (int level = 0; level < cluster.domain_count; ++level) {
      const DomainSpec& domain = cluster.domains[static_cast<std::size_t>(level)];
      bandwidth = domain.bandwidth * (level == 0 ? shared.scale_up : shared.scale_out);
      latency = domain.latency_seconds;
      if (static_cast<double>(domain.chips) > apart)
        break;
    }
    const double bytes = residual / (plan.sequence_parallel ? t : 1);
    TrafficCost& send = cost.traffic[static_cast<std::size_t>(Traffic::pipeline)];
    const double one = bytes / bandwidth + latency;
    send.bytes = 2 * microbatches * chunks * bytes;
    send.seconds = 2 * microbatches * chunks * one;
    send.exposed_seconds = std::min(send.seconds, shape.hops * one * shared.send_exposed);
  }

  // Gradients are reduced and parameters gathered once a step, or once a microbatch under ZeRO-3.
  const RankParameters held = rank_parameters(model, size, plan);
  const bool each_microbatch = plan.zero_stage >= 3 && plan.pp == 1;
  const double times = each_microbatch ? microbatches : 1;
  const double parameter_bytes = run.optimizer.parameter_bytes, gradient_bytes = shared.gradient_bytes;
  const double bytes_per_parameter =
      plan.zero_stage >= 3 ? 2 * parameter_bytes + gradient_bytes
                           : gradient_bytes + (plan.zero_stage >= 1 ? parameter_bytes : gradient_bytes);
  double data_seconds = 0, data_bytes = 0;
  if (data_ranks > 1) {
    data_seconds += gather_seconds(data, bytes_per_parameter * held.dense);
    data_bytes += bytes_per_parameter * held.dense;
  }
  if (expert_data_ranks > 1 && held.experts > 0) {
    data_seconds += gather_seconds(expert_data, bytes_per_parameter * held.experts);
    data_bytes += bytes_per_parameter * held.experts;
  }
  TrafficCost& reduction = cost.traffic[static_cast<std::size_t>(Traffic::data)];
  reduction.seconds = times * data_seconds;
  reduction.bytes = times * data_bytes;
  // It runs beside the passes of the microbatches that it belongs to.
  const double beside = each_microbatch ? pass_seconds : pass_seconds * 0.7;
  const double least_exposed = data_seconds * shared.data_exposed;
  reduction.exposed_seconds = times * std::max(least_exposed, data_seconds - beside);

  const StateBytes state{0, 0, plan.zero_stage >= 1 ? 1 / data_ranks : 1.0};
  const double updated =
      held.dense * state.optimizer + held.experts * (plan.zero_stage >= 1 ? 1 / expert_data_ranks : 1.0);
  cost.optimizer_seconds = updated * shared.optimizer_bytes / cluster.chip.memory_bandwidth;

  double hidden = 0;
  for (const TrafficCost& one : cost.traffic)
    hidden += one.hidden_seconds();
  cost.overhead_seconds += hidden * shared.contention;

  const double sum = cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds +
                     cost.overhead_seconds + cost.imbalance_seconds + cost.bubble_seconds +
                     cost.exposed_seconds() + cost.optimizer_seconds;
  double doublings = 0;
  for (double chips = static_cast<double>(plan.chips()); chips > 8; chips /= 2)
    doublings += chips >= 16 ? 1 : chips / 8 - 1;
  cost.straggler_seconds = sum * shared.jitter * doublings;
  cost.step_seconds = sum + cost.straggler_seconds;
  cost.least_seconds = cost.step_seconds * calibration.least_ratio;
  cost.most_seconds = cost.step_seconds * calibration.most_ratio;

  cost.memory = memory_cost(model, size, run, plan, shape.kept);
  if (cost.problem == PlanProblem::none && cost.memory.total() > cluster.chip.memory_bytes)
    cost.problem = PlanProblem::out_of_memory;

  const double all_tokens = static_cast<double>(run.tokens());
  cost.tokens = all_tokens;
  cost.chips = static_cast<double>(plan.chips());
  cost.causal_flops = all_tokens * flops_per_token(model, size, s, FlopsConvention::causal);
  cost.non_causal_flops = all_tokens * flops_per_token(model, size, s, FlopsConvention::non_causal);
  // A full recomputation is a forward pass of the layers; a selective one the scores alone.
  const double head = 2 * h * model.vocabulary;
  const auto recomputed = [&](double flops, FlopsConvention convention) {
    if (full)
      return flops / 3 - all_tokens * head;
    return attention_again * all_tokens * model.layers * attention_flops_per_pair(model) *
           attended_tokens(model, s, convention);
  };
  cost.causal_recomputed = recomputed(cost.causal_flops, FlopsConvention::causal);
  cost.non_causal_recomputed = recomputed(cost.non_causal_flops, FlopsConvention::non_causal);
  cost.peak_flops = cluster.chip.peak(run.precision);
  return cost;
}

/// @brief Cost of one step, with the constants of the cluster's chips.
[[nodiscard]] constexpr StepCost evaluate(const ModelSpec& model, const ClusterSpec& cluster,
                                          const RunSpec& run, const PlanConfiguration& plan) {
  return evaluate(model, cluster, run, plan, calibration_of(cluster.chip.generation));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
