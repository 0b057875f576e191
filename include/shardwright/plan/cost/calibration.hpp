// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The constants of the cost model: a few per generation of chips, fitted to published runs.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The fractions of its data-sheet figures that a generation of chips achieves. `matmul` is fitted.
struct ChipCalibration {
  double matmul = 0.8;          ///< Fraction of the peak in products of large matrices.
  double attention = 0.5;       ///< Fraction of the bf16 peak in the vendor's fused attention, as published.
  double plain_attention = 0.5; ///< The same for FlashAttention-2.
};

/// @brief Constants that all generations share: first the fitted ones, down to `step_seconds`.
///
/// `scripts/fit_planner` fits these to seven files of runs in data/ and writes them here.
/// The others are assumed: round figures, with which runs of other sources are predicted as well as with
/// fitted ones; 0.82 of NVLink is 370 of 450 GB/s, as NCCL reaches on an H100.
struct SharedCalibration {
  double attention_reached = 0.671;     ///< Fraction of the published rates of attention kernels, in a model.
  double eight_bit = 0.858;             ///< Fraction of the saving that the peaks of 8-bit formats promise.
  double rows_half = 499;               ///< Tokens of a product that takes twice its asymptotic time.
  double plain_traffic = 1.8;           ///< Factor on the traffic of a layer in the plain stack.
  double expert_seconds = 0.00418;      ///< Time of a separate host for both passes of a layer with experts.
  double each_expert_seconds = 0.00021; ///< The same for each expert of a rank, which has its own kernels.
  double behind_host = 0.313;   ///< Share of the shorter of host and chip time, added for such a layer.
  double biased_traffic = 7.29; ///< Factor on branch_bytes for experts with biases.
  double scan_flops = 3.75e+13; ///< FLOP/s of the scans of state spaces, whatever the chip.
  double unknown_program = 1.1; ///< Factor on the time of programs that are not tuned for their chips.
  double falls = 0.0157;        ///< Growth of a collective's time per doubling of the domains that it spans.
  double step_seconds = 0.0112; ///< Time of a step besides its passes: data, norms, synchronisation.

  double exponentials_shown = 0.5; ///< Share of softmax's exponentials that products do not hide.
  double attention_half = 500;     ///< Tokens in reach of a chip whose attention runs at half of its rate.
  double width_half = 200; ///< Columns and inner dimension of a product that takes twice its asymptotic time.
  double element_bytes = 120;    ///< Memory traffic per token and hidden element of a layer, both passes.
  double score_bytes = 40;       ///< Traffic per score if attention is not fused.
  double tensor_exposed = 0.7;   ///< Share of tensor-parallel traffic that nothing hides.
  double split_exposed = 0.3;    ///< The same if products are split to overlap it, as XLA does on a torus.
  double jitter = 0.005;         ///< Growth of the step per doubling of the chips above eight.
  double coupled_host = 0.6;     ///< Fraction of `expert_seconds` for a host on the chip's board.
  double sizing_host = 1.2;      ///< Factor on `expert_seconds` if the host sizes all-to-alls.
  double padded_host = 0.5;      ///< The same if the host knows all sizes beforehand.
  double overlapping_host = 1.3; ///< The same if all-to-alls run beside another microbatch.
  double captured_share =
      0.3; ///< Fraction of the host's time, and of exposed all-to-alls, with captured graphs.
  double sorting_traffic = 1.7; ///< Factor on routed_bytes if no fused dispatch sorts copies of tokens.
  double cast_bytes = 12;       ///< Traffic per element that a product of experts casts to 8 bits.
  double early_slows = 0.15;    ///< Slow-down of products and attention in a generation's first programs.
  double start_seconds = 20e-6; ///< Time that a collective takes to start.
  double early_months = 15;     ///< Until programs for a generation are as fast as later ones.
  double rows_peak = 989e12;    ///< FLOP/s in bf16 of the chip that `rows_half` is given for.
  double branch_bytes = 20;     ///< Traffic per element of the feed-forward.
  double logit_bytes = 20;      ///< Traffic per logit.
  double routed_bytes = 40;     ///< Traffic per routed copy of a hidden element.
  double scale_up = 0.82;       ///< Fraction of the nominal bandwidth inside a domain.
  double scale_out = 0.75;      ///< Fraction of the nominal bandwidth between domains.
  double context_exposed = 0.3; ///< Share of context-parallel traffic that nothing hides.
  double expert_exposed = 0.8;  ///< The same for the all-to-alls of experts.
  double paired_exposed = 0.1; ///< The same if a schedule overlaps a forward with a backward pass (DualPipe).
  double data_exposed = 0.15;  ///< The same for the gathers and reductions of ZeRO and data parallelism.
  double send_exposed = 0.5;   ///< The same for the sends that a schedule waits for.
  double contention = 0.15;    ///< Slow-down of computation by the traffic that it hides, per second of it.
  double host_seconds = 0.0004; ///< Time of a separate host to launch one pass of a layer.
  double layer_seconds = 30e-6; ///< Time of a layer and microbatch besides computation: launches, gaps.
  double gradient_bytes = 3;    ///< On the wire per parameter, if the run does not say.
  double weight_cast_bytes = 6; ///< Traffic per parameter of its cast to 8 or 4 bits, in both orientations.
  double optimizer_bytes = 40;  ///< Traffic per parameter and step.
};

/// @brief An interval for the ratio of measured to predicted time: 8% of the runs of a new source are below
/// it, and 8% above, if that source differs from the others as much as the published ones do. Each published
/// source is predicted with constants fitted to the others, and its n runs count as sqrt(n).
struct RatioInterval {
  double least = 1;
  double most = 1;
};

/// @brief All constants of one generation.
struct Calibration {
  ChipCalibration chip{};
  SharedCalibration shared{};
  RatioInterval dense{0.918, 1.15};   // of models without experts
  RatioInterval experts{0.81, 1.64};  // of models with experts
  RatioInterval unknown{0.745, 1.45}; // of other programs, beside `unknown_program`
  /// Standard deviations of that ratio's logarithm among the runs of one source: what is left of the errors
  /// if the program is known.
  double dense_within = 0.124;
  double experts_within = 0.163;
};

/// @brief Constants of each ChipGeneration, in its order. The second and third columns follow papers'
/// measurements of the kernels: arXiv 2307.08691, section 4 (50 to 73% of an A100, 335 TFLOP/s on an H100,
/// taken down to 300 for a causal mask), and arXiv 2407.08608, section 4 (740 TFLOP/s forward on an H100,
/// less backward). Blackwell is assumed to run the latter alike, but FlashAttention-2 no faster than an H100
/// (320 to 346 TFLOP/s: github.com/Dao-AILab/flash-attention/issues/1589).
inline constexpr std::array<ChipCalibration, 5> chip_calibrations{{
    {0.828, 0.55, 0.55}, // ampere
    {0.759, 0.60, 0.30}, // hopper
    {0.744, 0.60, 0.15}, // blackwell
    {0.85, 0.50, 0.50},  // tpu
    {0.75, 0.60, 0.30},  // generic
}};

/// @brief The fitted constants of a generation.
[[nodiscard]] constexpr Calibration calibration_of(ChipGeneration generation) noexcept {
  return {.chip = chip_calibrations[static_cast<std::size_t>(generation)]};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
