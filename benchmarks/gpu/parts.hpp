// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parts of the device benchmarks. Each prints its table and adds its figures.

#include "options.hpp"
#include "report.hpp"

namespace gpu {

/// @brief The rates that the card reaches, measured in the same run as everything that is compared with them.
struct Rates {
  double copy = 0;   ///< Bytes read plus bytes written per second, in a copy within the device.
  double bfloat = 0; ///< Floating-point operations per second of square products, bfloat16 into bfloat16,
  double tf32 = 0;   ///< of floats rounded to TF32
  double single = 0; ///< and of floats.
};

[[nodiscard]] Rates measure_rates(const Options& options, Report& report);
/// @brief Measures every kernel of a training step: its time, and its share of the copy rate or of the matrix
/// rate.
void measure_kernels(const Options& options, const Rates& rates, Report& report);
/// @brief Measures collectives of thread ranks that share the device, against the bytes that they must copy.
void measure_collectives(const Options& options, const Rates& rates, Report& report);
/// @brief Compares redistribute with the bare call, and measures transitions that do nothing.
void measure_transitions(const Options& options, const Rates& rates, Report& report);
/// @brief Measures a training step at GPT-2 124M size, by itself and against PyTorch.
void measure_training(const Options& options, const Rates& rates, Report& report);

} // namespace gpu
