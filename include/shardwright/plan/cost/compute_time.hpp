// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The compute time of one rank for one microbatch: products, attention, and memory-bound work.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Seconds of one microbatch's forward pass through a part, by what bounds them.
struct ForwardSeconds {
  double matmul = 0;
  double attention = 0;
  double elementwise = 0; ///< A third of the traffic of both passes.

  constexpr ForwardSeconds& operator+=(const ForwardSeconds& other) noexcept {
    matmul += other.matmul;
    attention += other.attention;
    elementwise += other.elementwise;
    return *this;
  }
  friend constexpr ForwardSeconds operator*(double times, const ForwardSeconds& one) noexcept {
    return {times * one.matmul, times * one.attention, times * one.elementwise};
  }
};

/// Forward times of the parts of a model on one rank.
struct RankComputation {
  ForwardSeconds dense_layer{};  ///< A layer with a dense feed-forward.
  ForwardSeconds expert_layer{}; ///< A layer with experts, on the mean load of a rank.
  ForwardSeconds dense_again{};  ///< The parts of each that a selective recomputation runs again.
  ForwardSeconds expert_again{};
  ForwardSeconds dense_skipped{}; ///< The parts of each that even a full recomputation leaves out.
  ForwardSeconds expert_skipped{};
  ForwardSeconds head{};  ///< Logits and loss of the next token.
  double expert_host = 0; ///< Seconds that a host takes to launch both passes of a layer with experts.
  double host = 0;        ///< Seconds that a host takes to launch one pass of a layer.
};

/// The common part of a rank's products: their rates, rows and the loss of narrow ones.
struct ProductRates {
  double full = 0;   ///< FLOP/s of large products in bf16.
  double narrow = 0; ///< The same in the format of the run.
  double half = 0;   ///< Columns of a product that takes twice its asymptotic time.
  double lost = 0;   ///< The same for its rows.
  double rows = 0;   ///< Twice the sum of a rank's tokens and those that it loses.

  [[nodiscard]] constexpr double sides(double k, double n) const noexcept { return (k + half) * (n + half); }
};

/// Factor on the time of products and attention in programs from a chip's first months.
[[nodiscard]] constexpr double early_factor(const RunSpec& run, const SharedCalibration& shared) noexcept {
  return 1 + shared.early_slows * std::clamp(1 - run.chip_months / shared.early_months, 0.0, 1.0);
}

/// Half of the rows that a product loses are those of its last tiles. The other half is time to fill the
/// chip and to empty it, during which a faster chip would compute more rows.
[[nodiscard]] constexpr ProductRates product_rates(const ChipSpec& chip, const RunSpec& run,
                                                   const Calibration& calibration, double tokens) noexcept {
  const SharedCalibration& shared = calibration.shared;
  // Steps of hosts with sequences of 1,024 tokens took 1.10 to 1.17 times as long, nearly all of it in
  // products: reproducible.md.
  const double longer = (run.reproducible ? 1.15 : 1) * early_factor(run, shared);
  const double full = calibration.chip.matmul * chip.sustained * chip.peak_bf16 / longer;
  // A format with fewer bits saves part of the time that the ratio of the peaks promises.
  const double peak = chip.peak(run.precision);
  const double narrow =
      peak == chip.peak_bf16 ? full : full / (1 - shared.eight_bit * (1 - 1 / (peak / chip.peak_bf16)));
  const double lost = shared.rows_half * (1 + chip.peak_bf16 / shared.rows_peak) / 2;
  return {full, narrow, shared.width_half, lost, 2 * (tokens + lost)};
}

/// Products over both sides of attention's matrices, per row.
[[nodiscard]] constexpr double attention_sides(const ModelSpec& model, const ProductRates& rates,
                                               double t) noexcept {
  const double h = model.hidden, a = model.heads, d = model.width_per_head();
  const LatentAttention& latent = model.latent;
  if (!latent.used())
    return rates.sides(h, d * (a + 2 * model.key_value_heads) / t) + rates.sides(a * d / t, h);
  const double width = latent.plain_width + latent.rotary_width;
  return (latent.query_rank > 0
              ? rates.sides(h, latent.query_rank) + rates.sides(latent.query_rank, a * width / t)
              : rates.sides(h, a * width / t)) +
         rates.sides(h, latent.key_value_rank + latent.rotary_width) +
         rates.sides(latent.key_value_rank, a * (latent.plain_width + latent.value_width) / t) +
         rates.sides(a * latent.value_width / t, h);
}

/// Forward seconds of a feed-forward, and the parts of these before, between and after its activation.
struct FeedForwardSeconds {
  ForwardSeconds all{};
  double activation = 0;
  double up = 0; ///< Of a dense one's products.
  double down = 0;
};

/// The dense feed-forward of a layer, or shared experts that are `width` wide together.
/// @param traffic seconds per byte of one pass in three
[[nodiscard]] constexpr FeedForwardSeconds dense_feed_forward(const ModelSpec& model, double width, double t,
                                                              const SharedCalibration& shared,
                                                              const ProductRates& rates, double tokens,
                                                              double traffic) noexcept {
  if (width <= 0)
    return {};
  const double h = model.hidden, columns = model.gated ? 2 : 1;
  const double activation = shared.branch_bytes * tokens * (columns + 1) * width / t / 2 * traffic;
  const double up = rates.rows * rates.sides(h, columns * width / t) / rates.narrow;
  const double down = rates.rows * rates.sides(width / t, h) / rates.narrow;
  return {{up + down, 0, activation}, activation, up, down};
}

/// The routed experts of a layer, on the mean load of a rank.
///
/// Copies of tokens pass through memory when they are sorted, and more often if no fused dispatch sorts them
/// in transit. Products in 8 bits write their operands again in that format, unless the kernels before them
/// do (those of captured graphs); experts with biases have no fused gate.
/// @param traffic seconds per byte of one pass in three
[[nodiscard]] constexpr FeedForwardSeconds routed_experts(const ModelSpec& model, const RunSpec& run,
                                                          const PlanConfiguration& plan,
                                                          const SharedCalibration& shared,
                                                          const ProductRates& rates, double tokens,
                                                          double traffic) noexcept {
  const ExpertSpec& experts = model.experts;
  const double t = plan.tp, h = model.routed_width(), w = experts.width, columns = model.gated ? 2 : 1;
  const double local = static_cast<double>(experts.count) / plan.ep;
  const double copies =
      tokens / t * experts.active * run.expert_capacity; // that a rank computes, as many as it sends
  const double rows = 2 * (copies + local * rates.lost) / rates.narrow;
  const double down = rows * rates.sides(w, h);
  const double gate = model.biases ? shared.biased_traffic : 1;
  const double sorting = run.dispatch == ExpertDispatch::fused ? 1 : shared.sorting_traffic;
  const bool casts = run.precision == Precision::fp8 || run.precision == Precision::fp4;
  const double activation = shared.branch_bytes * (columns + 1) * gate * copies * w / 2 * traffic;
  const double moved =
      ((casts && !run.captured_experts ? shared.cast_bytes * copies * (2 * h + (columns + 1) * w) : 0) +
       shared.routed_bytes * sorting * copies * h) *
      traffic;
  return {{rows * rates.sides(h, columns * w) + down, 0, activation + moved}, activation, 0, down};
}

/// A layer of a state space: its two products, its scan, and the operations between them, which move memory
/// as those of a feed-forward do. The scan is written in a portable language (Triton), whose kernels are
/// about as fast on each of these chips. It takes just as long on a rank with half of the heads, as all eight
/// published runs with tp = 2 show.
[[nodiscard]] constexpr ForwardSeconds state_space_layer(const ModelSpec& model, double t,
                                                         const SharedCalibration& shared,
                                                         const ProductRates& rates, double tokens,
                                                         double traffic) noexcept {
  const StateSpaceSpec& space = model.state_space;
  const double h = model.hidden, width = space.width() / t, inputs = space.input_width() / t;
  return {rates.rows * (rates.sides(h, inputs) + rates.sides(width, h)) / rates.narrow,
          tokens * scan_flops(space) / shared.scan_flops,
          shared.branch_bytes * tokens * (inputs + width) / 2 * traffic};
}

/// The operations that a selective recomputation runs again: those that the plan lists; else attention and,
/// since it is fused, the cheap operations whose results take as much memory (arXiv 2412.19437, section
/// 3.2.3).
[[nodiscard]] constexpr RecomputedOperations selected_operations(const RunSpec& run,
                                                                 const PlanConfiguration& plan) noexcept {
  return !plan.recomputed.empty() ? plan.recomputed
         : run.fused_attention
             ? RecomputedOperations{LayerOperation::attention, LayerOperation::norm,
                                    LayerOperation::activation, LayerOperation::latent_projections}
             : RecomputedOperations{LayerOperation::attention};
}

/// Seconds that a selective recomputation takes in every layer, whatever its feed-forward.
[[nodiscard]] constexpr ForwardSeconds common_again(const ModelSpec& model, const PlanConfiguration& plan,
                                                    const RecomputedOperations& again,
                                                    const ForwardSeconds& common, const ProductRates& rates,
                                                    double tokens, double memory) noexcept {
  ForwardSeconds out;
  if (again.has(LayerOperation::attention))
    out.attention = common.attention;
  if (again.has(LayerOperation::norm)) // two of them, each reading and writing the stream in 2 bytes
    out.elementwise =
        8 * model.branch_share() * tokens * model.hidden / (plan.sequence_parallel ? plan.tp : 1) / memory;
  if (const LatentAttention& latent = model.latent;
      latent.used() && again.has(LayerOperation::latent_projections)) {
    const double a = static_cast<double>(model.heads) / plan.tp;
    const double query = a * (latent.plain_width + latent.rotary_width);
    const double products = (latent.query_rank > 0 ? rates.sides(latent.query_rank, query) : 0) +
                            rates.sides(latent.key_value_rank, a * (latent.plain_width + latent.value_width));
    out.matmul = rates.rows * products / rates.narrow;
  }
  const double width = model.value_width();
  const double output = model.attention_share() * rates.rows *
                        rates.sides(model.heads * width / plan.tp, model.hidden) / rates.narrow;
  if (again.has(LayerOperation::qkv_projections)) // those out of latents among them
    out.matmul = common.matmul - output;
  if (again.has(LayerOperation::output_projection))
    out.matmul += output;
  return out;
}

/// The part of a feed-forward that is run again if it is listed itself, or if parts of it are.
[[nodiscard]] constexpr ForwardSeconds again_of(const FeedForwardSeconds& feed_forward,
                                                const RecomputedOperations& again, bool listed) noexcept {
  return listed ? feed_forward.all
                : ForwardSeconds{again.has(LayerOperation::up_projections) ? feed_forward.up : 0, 0,
                                 again.has(LayerOperation::activation) ? feed_forward.activation : 0};
}

/// Seconds that a separate host takes to launch both passes of a layer with experts: a kernel or more for
/// each expert of the rank, and the kernels around them.
[[nodiscard]] constexpr double expert_host_seconds(const ModelSpec& model, const RunSpec& run,
                                                   const PlanConfiguration& plan,
                                                   const SharedCalibration& shared) noexcept {
  const double dispatch = run.dispatch == ExpertDispatch::all_to_all ? shared.sizing_host
                          : run.dispatch == ExpertDispatch::padded   ? shared.padded_host
                                                                     : 1;
  return (shared.expert_seconds + shared.each_expert_seconds * model.experts.count / plan.ep) * dispatch *
         (run.captured_experts ? shared.captured_share : 1) *
         (run.overlapped_experts ? shared.overlapping_host : 1);
}

/// Attention of a layer. If fused, it counts the causal half of the scores; its rate is halved when a chip's
/// part of a sequence, or of a window, equals its constant.
///
/// A score takes an exponential in each pass, beside its products, of which the backward pass has five for
/// two. Kernels that are tuned run at the power limit of their chip. A matrix unit without known exponentials
/// (of a TPU) is as wide as the usual head, and idle in part if heads are narrower.
[[nodiscard]] constexpr double attention_seconds(const ModelSpec& model, const ChipSpec& chip,
                                                 const RunSpec& run, const PlanConfiguration& plan,
                                                 const Calibration& calibration, double tokens) noexcept {
  const SharedCalibration& shared = calibration.shared;
  const bool vendors = run.vendors_attention || (run.stack == KernelStack::tuned && !run.flash_2);
  const double kernel =
      vendors ? calibration.chip.attention * chip.sustained : calibration.chip.plain_attention;
  const double pairs =
      attended_tokens(model, static_cast<double>(run.sequence_length),
                      run.fused_attention ? FlopsConvention::causal : FlopsConvention::non_causal);
  const double products =
      attention_flops_per_pair(model) / (shared.attention_reached * kernel * chip.peak_bf16);
  const double width = model.latent.used() ? 128 : model.width_per_head();
  const double pair = chip.exponentials > 0
                          ? products + shared.exponentials_shown * 2 / 3.5 * model.heads / chip.exponentials
                          : products * std::max(1.0, 128 / width);
  const double seconds = early_factor(run, shared) * tokens * pairs * pair / plan.tp;
  return run.fused_attention ? seconds * (1 + shared.attention_half * plan.cp / (2 * pairs)) : seconds;
}

/// Adds the experts of a layer, routed and shared, and what of them is computed again.
constexpr void add_experts(RankComputation& out, const ModelSpec& model, const RunSpec& run,
                           const PlanConfiguration& plan, const SharedCalibration& shared,
                           const ProductRates& rates, double tokens, double traffic) noexcept {
  const double t = plan.tp, h = model.hidden;
  const RecomputedOperations listed = selected_operations(run, plan);
  const FeedForwardSeconds routed = routed_experts(model, run, plan, shared, rates, tokens, traffic);
  if (const double latent = model.experts.latent_width; latent > 0)
    out.expert_layer.matmul += rates.rows * (rates.sides(h, latent) + rates.sides(latent, h)) /
                               (t * rates.narrow); // of each rank's own tokens
  const FeedForwardSeconds always =
      dense_feed_forward(model, model.shared_expert_width(), t, shared, rates, tokens, traffic);
  const bool all = listed.has(LayerOperation::experts);
  out.expert_layer += routed.all;
  out.expert_layer += always.all;
  if (run.stops_early)
    out.expert_skipped.matmul = routed.down + always.down;
  if (plan.recomputation == Recompute::selective) {
    out.expert_again += again_of(routed, listed, all);
    out.expert_again += again_of(always, listed, all || listed.has(LayerOperation::shared_experts));
  }
}

/// The times of a rank.
///
/// A product of T x K by K x N takes 2 (T + T0)(K + K0)(N + N0) / (e peak): its rate is halved when one
/// extent equals its constant, which models the cost of tiles and their edges.
[[nodiscard]] constexpr RankComputation rank_computation(const ModelSpec& model, const ClusterSpec& cluster,
                                                         const RunSpec& run, const PlanConfiguration& plan,
                                                         const Calibration& calibration) noexcept {
  const SharedCalibration& shared = calibration.shared;
  const ChipSpec& chip = cluster.chip;
  const double t = plan.tp, h = model.hidden, a = model.heads;
  const double s = static_cast<double>(run.sequence_length);
  const double tokens = plan.microbatch * s / plan.cp;
  const ProductRates rates = product_rates(chip, run, calibration, tokens);
  const double memory = chip.memory_bandwidth;
  const double traffic = (run.stack == KernelStack::plain ? shared.plain_traffic : 1) / (3 * memory);

  ForwardSeconds common;
  common.attention = model.attention_share() * attention_seconds(model, chip, run, plan, calibration, tokens);
  common.elementwise =
      model.branch_share() * shared.element_bytes * tokens * h / (plan.sequence_parallel ? t : 1) * traffic;
  if (!run.fused_attention)
    common.elementwise += shared.score_bytes * tokens * s * a / t / (3 * memory);
  common.matmul = model.attention_share() * rates.rows * attention_sides(model, rates, t) / rates.narrow;

  const RecomputedOperations listed = selected_operations(run, plan);
  const bool selects = plan.recomputation == Recompute::selective;
  const ForwardSeconds again =
      selects ? common_again(model, plan, listed, common, rates, tokens, memory) : ForwardSeconds{};
  if (model.state_space.used())
    common += model.state_space_share() * state_space_layer(model, t, shared, rates, tokens, traffic);
  RankComputation out{
      .dense_layer = common, .expert_layer = common, .dense_again = again, .expert_again = again};
  const auto feed_forward = [&](double width) {
    return dense_feed_forward(model, width, t, shared, rates, tokens, traffic);
  };
  if (model.dense_layers() > 0) {
    const FeedForwardSeconds dense = feed_forward(model.feed_forward);
    out.dense_layer += dense.all;
    if (chip.host() == HostKind::compiled || run.stack == KernelStack::compiled || run.stops_early)
      out.dense_skipped.matmul = dense.down;
    if (selects)
      out.dense_again += again_of(dense, listed, listed.has(LayerOperation::feed_forward));
  }
  const HostKind host = chip.host();
  const double slow = host == HostKind::compiled ? 0 : host == HostKind::coupled ? shared.coupled_host : 1;
  if (model.experts.used()) {
    add_experts(out, model, run, plan, shared, rates, tokens, traffic);
    out.expert_host = slow * expert_host_seconds(model, run, plan, shared);
  }
  out.host = shared.host_seconds * slow;
  out.head.matmul = rates.rows * rates.sides(h, model.vocabulary / t) / rates.full;
  out.head.elementwise = shared.logit_bytes * tokens * model.vocabulary / t / (3 * memory);
  if (model.prediction_layers > 0) { // its stage has fewer layers to make up for it, so that all have a share
    ForwardSeconds predictor = out.head;
    predictor.matmul += rates.rows * rates.sides(2 * h, h / t) / rates.narrow;
    const ForwardSeconds share =
        static_cast<double>(model.prediction_layers) / model.feed_forwards() * predictor;
    out.dense_layer += share;
    out.expert_layer += share;
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
