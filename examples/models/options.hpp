// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of train_models as a value.

#include <trainer/options.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace models {

/// @brief The properties that distinguish one compiled training from another.
struct TrainingKind {
  std::string model;
  trainer::Precision precision = trainer::Precision::fp32;
  int zero = 0;

  friend bool operator==(const TrainingKind&, const TrainingKind&) = default;
};

/// @brief The model to train, and its distribution over ranks.
struct Options : trainer::RunOptions {
  using Kind = TrainingKind;
  Options() {
    program = "train_models";
    model = "mlp";
    steps = 100;
    batch = 24;
    learning_rate = least_learning_rate = 0.003;
    validation_batches = 1;
  }

  std::filesystem::path dump; ///< Directory for weights, data and losses; empty: none.

  /// @brief The compiled training that runs it.
  [[nodiscard]] TrainingKind kind() const { return {model, precision, zero}; }
  /// @brief Every setting that all ranks must share, one per line.
  [[nodiscard]] std::string configuration_text() const;
  /// @brief Every setting that affects the numbers of a run, one per line; mesh, schedule and sharding do
  /// not.
  [[nodiscard]] std::string continued_text(std::uint64_t data_hash) const;
};

using ParseResult = trainer::Parsed<Options>;

/// @brief Reads the command line; has no side effects, and never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv, const trainer::Environment& environment);

} // namespace models
