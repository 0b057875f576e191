// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of train_models as a value.

#include <command_line/mesh.hpp>
#include <shardwright/plan/spec/recompute.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace models {

/// @brief The model to train, and its distribution over ranks.
struct Options {
  std::string model = "mlp";
  std::vector<command_line::MeshAxis> mesh;
  std::string precision = "fp32";
  int zero = 0; ///< 3: data and context ranks share parameters, gradients and optimizer state.
  std::string schedule = "1f1b";
  int chunks = 2; ///< Stages per rank of an interleaved schedule.
  shardwright::Recompute recompute = shardwright::Recompute::none;
  std::int64_t steps = 100;
  std::int64_t batch = 24;
  int microbatches = 1;
  std::uint64_t seed = 1;
  double learning_rate = 0.003;
  double weight_decay = 0.1;
  double clip = 1;
  std::filesystem::path dump; ///< Directory for weights, data and losses; empty: none.

  /// @brief Ranks along an axis of the mesh; 1 for an axis that is not given.
  [[nodiscard]] int extent(std::string_view axis) const noexcept;
  [[nodiscard]] int ranks() const noexcept;
  /// @brief Everything that must agree between ranks, one line per option.
  [[nodiscard]] std::string text() const;
};

/// @brief Options, or what to print instead: the help or an error message.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace models
