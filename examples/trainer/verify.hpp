// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares a run with its repetition on one rank.

#include "options.hpp"
#include "run_result.hpp"

#include <functional>
#include <iosfwd>
#include <string>

namespace trainer {

/// @brief The relative difference of losses and gradient norms that a precision allows in every step: 1e-4 in
/// fp32, 1e-8 in fp64, a unit roundoff in bf16 and fp16.
[[nodiscard]] double tolerance_of(Precision precision);

/// @brief A factor of the learning rate that changes it by a rounding or two of the arithmetic.
[[nodiscard]] double nearby_rate(Precision precision);

/// @brief Gives a repetition the steps that a run has made, which --patience may have ended early, at the
/// same learning rates times a factor.
void repeat_steps(RunOptions& options, const RunResult& run, double rate_factor);

/// @brief Judges a reproducible run by its repetition: prints the hash of all bits, or the first step and the
/// values in it that differ. @return 0 if the bits are equal, else 1
[[nodiscard]] int report_bits(std::ostream& out, const RunResult& run, const RunResult& one);

/// @brief Judges a run by its repetition, and prints the largest difference of each quantity.
///
/// A step multiplies the differences that roundings have made so far, so after many steps those of two
/// correct runs exceed any fixed tolerance. If a step does, `nearby()` returns the repetition with the
/// learning rate times nearby_rate(): its difference from `one` up to a step is what roundings alone come to,
/// and eight times as much is allowed there beside the tolerance. A fault shows in earlier steps, where that
/// is still small.
/// @param reference " from one rank", or another run
/// @param one of as many steps as `run`
/// @return 0 if losses and, except in 16 bits, gradient norms agree in every step, and the validation loss,
/// else 1.
[[nodiscard]] int report_differences(std::ostream& out, const RunOptions& options,
                                     const std::string& reference, double tolerance, const RunResult& run,
                                     const RunResult& one, const std::function<RunResult()>& nearby);

} // namespace trainer
