// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The constants of the cost model: few per generation of chips, fitted to published runs.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cluster_spec.hpp>

#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a generation of chips reaches of its data sheet.
struct ChipCalibration {
  double matmul = 0.8;          ///< Of the peak, in products of large matrices.
  double attention = 0.5;       ///< Of the bf16 peak, in fused attention with 128 per head.
  double eight_bit = 0.8;       ///< Of the gain that the peaks of narrower formats promise, in time saved.
  double layer_seconds = 20e-6; ///< Of a layer and microbatch that is not computation: launches, gaps.
};

/// @brief Constants that all generations share.
struct SharedCalibration {
  double rows_half = 500;      ///< Tokens of a product that takes twice its asymptotic time.
  double width_half = 300;     ///< The same of its columns and of what it sums over.
  double element_bytes = 120;  ///< Memory traffic per token and hidden element of a layer, both passes.
  double branch_bytes = 20;    ///< The same per element of the feed-forward.
  double score_bytes = 40;     ///< The same per score where attention is not fused.
  double logit_bytes = 20;     ///< The same per logit.
  double routed_bytes = 40;    ///< The same per routed copy of a hidden element.
  double scale_up = 0.75;      ///< Of the nominal bandwidth inside a domain.
  double scale_out = 0.75;     ///< The same between domains.
  double tensor_exposed = 0.7; ///< Share of tensor-parallel traffic that nothing hides.
  double context_exposed = 0.3;
  double expert_exposed = 0.8;
  double data_exposed = 0.15; ///< Of the gathers and reductions of ZeRO and data parallelism.
  double send_exposed = 0.5;  ///< Of the sends that a schedule waits for.
  double contention = 0.15;   ///< Slow-down of computation by the traffic that it hides, per second of it.
  double jitter = 0.01;       ///< Growth of the step per doubling of the chips above eight.
  double expert_seconds = 300e-6; ///< Of a layer with experts and a microbatch, beside layer_seconds.
  double gradient_bytes = 3;      ///< On the wire per parameter: bf16 or fp32 gradients are not told apart.
  double optimizer_bytes = 40;    ///< Memory traffic per parameter and step.
};

/// @brief All constants of one generation.
struct Calibration {
  ChipCalibration chip{};
  SharedCalibration shared{};
  double least_ratio = 0.85; ///< Measured over predicted time of the tenth percentile of published runs.
  double most_ratio = 1.2;   ///< The same of the ninetieth.
};

inline constexpr std::array<ChipCalibration, 5> chip_calibrations{{
    {0.80, 0.50, 0.8, 20e-6},
    {0.72, 0.45, 0.8, 20e-6},
    {0.72, 0.45, 0.8, 20e-6},
    {0.80, 0.45, 0.8, 10e-6},
    {0.72, 0.45, 0.8, 20e-6},
}};

/// @brief The fitted constants of a generation.
[[nodiscard]] constexpr Calibration calibration_of(ChipGeneration generation) noexcept {
  return {chip_calibrations[static_cast<std::size_t>(generation)], {}};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
