// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares a run with its repetition on one rank.

#include "options.hpp"
#include "training.hpp"

#include <iosfwd>

namespace train_gpt {

/// @brief The same run on one rank: same batches in the same passes, no parallelism.
[[nodiscard]] Options on_one_rank(Options options);

/// @brief Prints, per quantity, the largest difference between the two runs.
/// @return 0 if the losses agree within the tolerance of the precision (1e-4 relative in fp32, 1e-8 in fp64,
/// a unit roundoff in bf16 and fp16), else 1.
[[nodiscard]] int report_differences(std::ostream& out, const Options& options, const RunResult& run,
                                     const RunResult& one);

} // namespace train_gpt
