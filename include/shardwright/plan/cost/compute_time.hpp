// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Time that one rank computes for one microbatch: products, attention, what memory bounds.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Seconds of the forward pass of one microbatch through something, by what bounds them.
struct ForwardSeconds {
  double matmul = 0;
  double attention = 0;
  double elementwise = 0; ///< A third of the traffic of both passes.
};

/// Forward times of the parts of a model on one rank.
struct RankComputation {
  ForwardSeconds dense_layer{};  ///< A layer with a dense feed-forward.
  ForwardSeconds expert_layer{}; ///< A layer with experts, on the mean load of a rank.
  ForwardSeconds head{};         ///< Logits and loss.
  double expert_overhead = 0; ///< Seconds of both passes of a layer with experts in which nothing computes.
  double host = 0;            ///< Seconds that a host takes to launch one pass of a layer.
};

/// Times of a rank.
///
/// A product of T x K by K x N takes 2 (T + T0)(K + K0)(N + N0) / (e peak): its rate falls to the half where
/// one extent is at its constant, which is what tiles and their edges cost. Attention counts the causal half
/// of the scores where it is fused, and falls to half of its rate where a chip's part of a sequence, or of a
/// window, is at its constant.
[[nodiscard]] constexpr RankComputation rank_computation(const ModelSpec& model, const ClusterSpec& cluster,
                                                         const RunSpec& run, const PlanConfiguration& plan,
                                                         const Calibration& calibration) noexcept {
  const ChipCalibration& of_chip = calibration.chip;
  const SharedCalibration& shared = calibration.shared;
  const ChipSpec& chip = cluster.chip;
  const double t = plan.tp, h = model.hidden, a = model.heads, d = model.width_per_head();
  const double s = static_cast<double>(run.sequence_length);
  const double tokens = plan.microbatch * s / plan.cp;
  const double full_rate = of_chip.matmul * chip.sustained * chip.peak_bf16;
  // A format of fewer bits saves a part of what the ratio of the peaks promises.
  const double narrow = chip.peak(run.precision) / chip.peak_bf16;
  const double rate = full_rate / (1 - shared.eight_bit * (1 - 1 / narrow));
  const double memory = chip.memory_bandwidth;

  const bool plain = run.stack == KernelStack::plain;
  const double attention_reached =
      shared.attention_reached * (plain ? of_chip.plain_attention : of_chip.attention);
  const double traffic = (plain ? shared.plain_traffic : 1) / (3 * memory); // of one pass in three
  const double half = shared.width_half;
  const auto sides = [half](double k, double n) { return (k + half) * (n + half); };
  const double rows = 2 * (tokens + shared.rows_half);

  double attention_sides = 0;
  if (const LatentAttention& latent = model.latent; latent.used()) {
    const double width = latent.plain_width + latent.rotary_width;
    attention_sides =
        (latent.query_rank > 0 ? sides(h, latent.query_rank) + sides(latent.query_rank, a * width / t)
                               : sides(h, a * width / t)) +
        sides(h, latent.key_value_rank + latent.rotary_width) +
        sides(latent.key_value_rank, a * (latent.plain_width + latent.value_width) / t) +
        sides(a * latent.value_width / t, h);
  } else {
    attention_sides = sides(h, d * (a + 2 * model.key_value_heads) / t) + sides(a * d / t, h);
  }
  const double columns = model.gated ? 2 : 1;

  ForwardSeconds common;
  const double pairs =
      attended_tokens(model, s, run.fused_attention ? FlopsConvention::causal : FlopsConvention::non_causal);
  const double narrow_heads = std::min(1.0, (model.latent.used() ? 128.0 : d) / 128);
  common.attention = tokens * pairs * attention_flops_per_pair(model) / t /
                     (attention_reached * chip.peak_bf16 * (0.5 + 0.5 * narrow_heads));
  if (run.fused_attention)
    common.attention *= 1 + shared.attention_half * plan.cp / (2 * pairs);
  const double split = plan.sequence_parallel ? t : 1;
  common.elementwise = shared.element_bytes * tokens * h / split * traffic;
  if (!run.fused_attention)
    common.elementwise += shared.score_bytes * tokens * s * a / t / (3 * memory);
  common.matmul = rows * attention_sides / rate;

  RankComputation out{common, common, {}, 0, 0};
  const double f = model.feed_forward;
  out.dense_layer.matmul += rows * (sides(h, columns * f / t) + sides(f / t, h)) / rate;
  out.dense_layer.elementwise += shared.branch_bytes * tokens * (columns + 1) * f / t / 2 * traffic;
  if (const ExpertSpec& experts = model.experts; experts.used()) {
    const double local = static_cast<double>(experts.count) / plan.ep;
    const double copies =
        tokens / t * experts.active * run.expert_capacity; // that a rank computes: as many as it sends
    const double w = experts.width;
    const double one = (sides(h, columns * w) + sides(w, h)) * 2;
    out.expert_layer.matmul += (copies + local * shared.rows_half) * one / rate;
    const double w_shared = model.shared_expert_width();
    if (w_shared > 0)
      out.expert_layer.matmul += rows * (sides(h, columns * w_shared / t) + sides(w_shared / t, h)) / rate;
    out.expert_layer.elementwise +=
        (shared.branch_bytes * (columns + 1) * (copies * w + tokens * w_shared / t) / 2 +
         shared.routed_bytes * copies * h) *
        traffic;
  }
  const HostKind host = chip.host();
  const double slow = host == HostKind::compiled ? 0 : host == HostKind::coupled ? shared.coupled_host : 1;
  out.expert_overhead = shared.expert_seconds * slow * (run.captured_experts ? shared.captured_share : 1);
  out.host = shared.host_seconds * slow;
  out.head.matmul = rows * sides(h, model.vocabulary / t) / full_rate;
  out.head.elementwise = shared.logit_bytes * tokens * model.vocabulary / t / (3 * memory);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
