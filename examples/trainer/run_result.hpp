// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The results of a run.

#include <shardwright/io/hash_record.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

/// @brief The loss and the gradient norm of one optimizer step, the same on every rank.
struct StepRecord {
  double loss = 0; ///< Nats per byte, token or sample.
  double gradient_norm = 0;
};

/// @brief Numbers of a parameter or of data, whole, in double.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

/// @brief The results of a run.
struct RunResult {
  std::vector<StepRecord> steps;
  double validation_loss = 0;          ///< Of the final parameters.
  std::vector<NamedTensor> parameters; ///< Final values, if they were asked for; on the first rank only.
  shardwright::HashRecord hashes{};    ///< Of the steps of a reproducible run, if it is verified.
  double seconds = 0;
  bool stopped = false; ///< Before its last step, by a signal or an option.
  std::int64_t pool_allocations =
      0; ///< Blocks that the memory pool allocated from the system after the second step.
};

} // namespace trainer
