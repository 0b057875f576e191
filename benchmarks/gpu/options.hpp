// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of the device benchmarks.

#include "step_sizes.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gpu {

/// @brief The parts to measure, and their sizes.
struct Options {
  std::vector<std::string> parts; ///< From part_names(); the rates of the card are always measured first.
  step_kernels::Sizes model;      ///< `batch` is that of the kernel table.
  std::size_t training_batch = 0; ///< 0: as many sequences as fit beside PyTorch, 32 at most.
  std::size_t matrix = 8192;      ///< Rows and columns of the products that give the matrix rates.
  std::size_t copy_bytes = std::size_t{1} << 30;
  std::size_t least_bytes = std::size_t{64} << 10; ///< Of a rank's larger buffer in a collective.
  std::size_t most_bytes = std::size_t{256} << 20;
  int ranks = 4;        ///< Thread ranks of the collectives.
  int turns = 5;        ///< Each figure is a median over the turns.
  int steps = 5;        ///< Training steps of one turn.
  std::string python;   ///< A Python with torch; empty: no comparison.
  bool compiled = true; ///< Compare with torch.compile, too.
  std::string json;     ///< Empty: none.
};

/// @brief GPT-2 124M: 12 layers, 768, 12 heads, sequence 1024, vocabulary 50304 (Radford et al. 2019, rounded
/// up to a multiple of 64); with SwiGLU of 2048 and one table for input and output that is 124 million
/// elements in this library's decoder, too.
[[nodiscard]] Options standard_options();
/// @brief Sizes that a host computes in seconds, to try the program.
[[nodiscard]] Options small_options();
[[nodiscard]] const std::vector<std::string>& part_names();

/// @brief Options, or a message and the code to end with.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};
[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace gpu
