// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares a run with its repetition on one rank.

#include "options.hpp"
#include "run_result.hpp"

#include <iosfwd>
#include <string>

namespace trainer {

/// @brief The relative difference of losses that a precision allows: 1e-4 in fp32, 1e-8 in fp64, a unit
/// roundoff in bf16 and fp16.
[[nodiscard]] double tolerance_of(Precision precision);

/// @brief Prints, per quantity, the largest difference between the two runs.
/// @param reference " from one rank", or another run
/// @return 0 if the losses agree within the tolerance, else 1.
[[nodiscard]] int report_differences(std::ostream& out, const RunOptions& options,
                                     const std::string& reference, double tolerance, const RunResult& run,
                                     const RunResult& one);

} // namespace trainer
