// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Communication of a step by purpose: within layers, pipeline sends, data parallelism.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Bytes that a rank sends and seconds on the wire in the forward pass of one microbatch through one or
/// several layers.
struct LayerTraffic {
  TrafficCost tensor{}, context{}, expert{};

  [[nodiscard]] constexpr double exposed_seconds() const noexcept {
    return tensor.exposed_seconds + context.exposed_seconds + expert.exposed_seconds;
  }
  [[nodiscard]] constexpr double hidden_seconds() const noexcept {
    return tensor.hidden_seconds() + context.hidden_seconds() + expert.hidden_seconds();
  }
};

/// Returns whether the schedule overlaps a forward with a backward pass, which hides expert traffic.
[[nodiscard]] constexpr bool pairs_passes(const PlanConfiguration& plan) noexcept {
  return plan.pp > 1 &&
         (plan.schedule == PlanSchedule::dual_pipe || plan.schedule == PlanSchedule::dual_pipe_v);
}

/// The traffic of a layer, and how much of it is exposed; a backward pass has as much, and so does a
/// recomputed forward pass.
///
/// Tensor parallelism gathers and scatters the tokens around attention and around the feed-forward (4 (t-1)/t
/// 2 b s h bytes, as many as two all-reduces; half of that if both are one parallel block); XLA on a torus,
/// and user buffers on GPUs, split products to overlap them. Context parallelism gathers keys and values.
/// Experts receive and return each copy of a token; DualPipe was designed to hide this (arXiv 2412.19437,
/// section 3.2.1).
/// @param links of the plan in the cluster.
[[nodiscard]] constexpr LayerTraffic layer_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                                   const RunSpec& run, const PlanConfiguration& plan,
                                                   const PlanLinks& links,
                                                   const SharedCalibration& shared) noexcept {
  const double t = plan.tp, residual = 2 * rank_tokens(run, plan) * model.hidden;
  LayerTraffic traffic;
  if (plan.tp > 1) {
    const double times = model.parallel_block ? 2 : 4 * model.branch_share();
    traffic.tensor.bytes = times * residual * (t - 1) / t;
    traffic.tensor.seconds = times * links.tensor.seconds(residual);
    // Split products hide more of it than others, tuned programs more than PyTorch's own.
    const bool split = cluster.domains[0].torus_dimensions > 0 || run.overlapped_tensor;
    const std::array exposed{shared.split_exposed, shared.tensor_exposed, 1.0};
    const std::size_t missing = (split ? 0 : 1) + (run.stack == KernelStack::tuned ? 0 : 1);
    traffic.tensor.exposed_seconds = traffic.tensor.seconds * (links.tensor.leaves ? 1 : exposed[missing]);
  }
  if (plan.cp > 1) {
    const double heads = model.latent.used() ? model.heads : model.key_value_heads;
    const double width = heads * (model.key_width() + model.value_width()) / t;
    const double gathered = 2 * rank_tokens(run, plan) * plan.cp * width * model.attention_share();
    traffic.context.bytes = gathered * (plan.cp - 1) / plan.cp;
    traffic.context.seconds = links.context.seconds(gathered);
    traffic.context.exposed_seconds = traffic.context.seconds * shared.context_exposed;
  }
  if (plan.ep > 1) {
    const double routed = residual / t * model.experts.active * model.routed_width() / model.hidden;
    traffic.expert.bytes = 2 * routed * (plan.ep - 1) / plan.ep;
    traffic.expert.seconds = 2 * links.expert.seconds(routed);
    traffic.expert.exposed_seconds =
        traffic.expert.seconds *
        (pairs_passes(plan) || run.overlapped_experts ? shared.paired_exposed : shared.expert_exposed) *
        (run.captured_experts ? shared.captured_share : 1);
  }
  return traffic;
}

/// Sends of activations and gradients between stages.
/// @param hops sends that the makespan waits for, from `pipeline_shape`.
[[nodiscard]] constexpr TrafficCost send_traffic(const ModelSpec& model, const RunSpec& run,
                                                 const PlanConfiguration& plan, const PlanLinks& links,
                                                 const SharedCalibration& shared, double microbatches,
                                                 int chunks, double hops) noexcept {
  if (plan.pp <= 1)
    return {};
  const double bytes = 2 * rank_tokens(run, plan) * model.hidden / (plan.sequence_parallel ? plan.tp : 1);
  const double one = links.pipeline.seconds(bytes), sends = 2 * microbatches * chunks;
  const double exposed = hops * shared.send_exposed; // by all ranks, so that at times more than one sends
  return {sends * bytes, std::max(sends, exposed) * one, exposed * one};
}

/// Bytes per parameter that data parallelism moves: a reduction and two gathers under ZeRO-3 (1 + 2),
/// a reduction and a gather under ZeRO-1 and 2, an all-reduce otherwise: arXiv 1910.02054, section 7.
///
/// ZeRO-2 does not store whole gradients, so it reduces those of each microbatch during its backward passes.
/// With copies of the parts (HSDP), gradients are then summed over these.
struct DataBytes {
  double reduced = 0;
  double gathered = 0;
  double each = 0;   ///< Reduced with every microbatch.
  double rounds = 1; ///< Gathers and reductions of a layer, beside those of every microbatch.
  double copied = 0; ///< Moved between copies of a parameter's part.

  [[nodiscard]] constexpr double together() const noexcept { return reduced + gathered; }
};

[[nodiscard]] constexpr DataBytes data_bytes(const RunSpec& run, const PlanConfiguration& plan,
                                             const SharedCalibration& shared) noexcept {
  const OptimizerSpec& bytes = run.optimizer;
  const double parameter = bytes.gathered_bytes > 0 ? bytes.gathered_bytes : bytes.parameter_bytes;
  const double gradient = bytes.reduced_bytes > 0 ? bytes.reduced_bytes : shared.gradient_bytes;
  DataBytes out = plan.zero_stage >= 3   ? DataBytes{gradient, 2 * parameter, 0, 3}
                  : plan.zero_stage == 2 ? DataBytes{0, parameter, gradient, 1}
                  : plan.zero_stage == 1 ? DataBytes{gradient, parameter, 0, 2}
                                         : DataBytes{2 * gradient, 0, 0, 2};
  if (plan.shard_ranks > 0)
    out.copied = 2 * gradient / plan.data_shards();
  return out;
}

/// Returns whether parameters are gathered and gradients reduced with every microbatch, as in ZeRO-3
/// without a pipeline, rather than once a step.
[[nodiscard]] constexpr bool data_each_microbatch(const PlanConfiguration& plan) noexcept {
  return plan.zero_stage >= 3 && plan.pp == 1;
}

/// Passes of one microbatch that data-parallel traffic can overlap. Backward passes are two thirds of a
/// microbatch, and the first buckets must be filled. Interleaved stages finish their last microbatches, one
/// for each rank, chunk by chunk, so that the traffic of a chunk runs beside all passes of the others.
[[nodiscard]] constexpr double data_beside(const PlanConfiguration& plan, double microbatches) noexcept {
  return data_each_microbatch(plan) ? 1
                                    : 0.7 * (plan.pp > 1 && takes_chunks(plan.schedule)
                                                 ? std::min(microbatches, static_cast<double>(plan.pp))
                                                 : 1);
}

/// Seconds of data-parallel traffic, of dense parameters, between copies of their parts, and of experts.
struct DataSeconds {
  double dense = 0;
  double copies = 0;
  double experts = 0;
  bool beside = false; ///< Whether sums over copies run beside gathers, on other links.

  [[nodiscard]] constexpr double sum() const noexcept {
    return (beside ? std::max(dense, copies) : dense + copies) + experts;
  }
};

/// Every layer sends a message of its own in each of `rounds` gathers and reductions.
/// Sums over copies leave the domain in which gathers stay, or run along another dimension of its torus.
[[nodiscard]] constexpr DataSeconds data_seconds(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                                 const RankParameters& held, const PlanLinks& links,
                                                 double per_parameter, double rounds,
                                                 double copied) noexcept {
  const double messages = std::max(1.0, held.layers * rounds);
  const auto seconds = [](const MessageTime& link, double bytes, double times) {
    return bytes * link.per_byte + times * link.latency_seconds;
  };
  const bool dense = plan.data_shards() > 1 && held.dense > 0;
  const bool experts = plan.expert_dp() > 1 && held.experts > 0;
  return {dense ? seconds(links.data, per_parameter * held.dense, messages) : 0,
          copied > 0 ? seconds(links.copies, copied * held.dense, held.layers) : 0,
          experts ? seconds(links.expert_data, per_parameter * held.experts, messages) : 0,
          !links.data.leaves && (links.copies.leaves || cluster.domains[0].torus_dimensions > 0)};
}

/// Seconds of one microbatch that data-parallel traffic can overlap.
struct BesideSeconds {
  double pass = 0;     ///< All of its passes.
  double backward = 0; ///< What its backward passes compute.
};

/// Data-parallel traffic: outside the passes, and within the backward passes of each microbatch.
struct DataTraffic {
  TrafficCost apart{}, each{};
};

/// Gradients reduced and parameters gathered.
[[nodiscard]] constexpr DataTraffic data_traffic(const ClusterSpec& cluster, const RunSpec& run,
                                                 const PlanConfiguration& plan, const RankParameters& held,
                                                 const PlanLinks& links, const SharedCalibration& shared,
                                                 double microbatches, const BesideSeconds& beside) noexcept {
  const DataBytes bytes = data_bytes(run, plan, shared);
  const auto others = [](double ranks) { return ranks > 1 ? (ranks - 1) / ranks : 0; };
  const double parameters =
      held.dense * others(plan.data_shards()) + held.experts * others(static_cast<double>(plan.expert_dp()));
  const auto moved = [&](double per_parameter, double rounds, double copied, double hides) {
    if (per_parameter <= 0)
      return TrafficCost{};
    const double seconds = data_seconds(cluster, plan, held, links, per_parameter, rounds, copied).sum();
    return TrafficCost{per_parameter * parameters + copied * held.dense, seconds,
                       std::max(seconds * shared.data_exposed, seconds - hides)};
  };
  const double times = data_each_microbatch(plan) ? microbatches : 1;
  const double copies = parameter_copies(plan); // a microbatch has gradients of one of them
  return {times * moved(bytes.together(), bytes.rounds, bytes.copied,
                        data_beside(plan, microbatches) * beside.pass),
          moved(bytes.each / copies, 1, 0, beside.backward)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
