// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A program whose measured runs say how its steps differ from their predictions.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace plan_example {

using namespace shardwright;

/// @brief Programs that the constants are fitted to: their authors tuned them for their chips, so that times
/// need no factor; each by a word that sources or notes of its runs hold. The first that is found counts, and
/// one without a name is no such program.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 17> named_programs{{
    {"paxml", ""},
    {"flagperf", "megatron"},
    {"training_results", "mlperf"},
    {"automodel", "automodel"},
    {"megatron-bridge", "megatron"},
    {"megatron-moe", "megatron"},
    {"nvidia/megatron", "megatron"},
    {"arxiv:2205.05198", "megatron"},
    {"arxiv:2104.04473", "megatron"},
    {"maxtext", "maxtext"},
    {"tpu-recipes", "maxtext"},
    {"nemo", "nemo"},
    {"dgxc-benchmarking", "nemo"},
    {"torchtitan", "torchtitan"},
    {"llm-foundry", "llm-foundry"},
    {"internevo", "internevo"},
    {"fms-fsdp", "fms-fsdp"},
}};

/// @brief Returns whether a text holds a word, after which more letters may follow ("norms", "Overlapped").
[[nodiscard]] constexpr bool names_word(std::string_view text, std::string_view word) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const auto found = std::search(text.begin(), text.end(), word.begin(), word.end(),
                                 [&](char left, char right) { return lower(left) == lower(right); });
  return found != text.end();
}

/// @brief The name of a program of `named_programs` by texts that may name it; empty if none does.
[[nodiscard]] constexpr std::string_view program_named_in(std::string_view source, std::string_view notes) {
  for (const auto& [word, name] : named_programs)
    if (names_word(source, word) || names_word(notes, word))
      return name;
  return {};
}

/// @brief The factor by which a program is slower than predicted. Programs differ by one that no input
/// states, and that is nearly the same for all runs of one.
struct ProgramFactor {
  double factor = Calibration{}.shared.unknown_program; ///< Median of measured over predicted time.
  std::size_t runs = 0; ///< Measured; without any, the factor is the usual one of unnamed programs.
  bool flash_2 = true;  ///< Whether the predictions were those of FlashAttention-2.

  /// @brief A predicted cost as that of the program. Its interval holds four of five further runs: as in the
  /// interval of other programs, 8% are on either side, 1.41 standard deviations of a normal distribution
  /// away. The variance is that of one run and that of the mean of the measured ones.
  [[nodiscard]] StepCost of(const StepCost& cost, const ModelSpec& model) const {
    constexpr Calibration calibration;
    StepCost out = cost.slowed(factor);
    if (runs == 0) {
      out.least_seconds = out.step_seconds * calibration.unknown.least;
      out.most_seconds = out.step_seconds * calibration.unknown.most;
      return out;
    }
    const double within = model.experts.used() ? calibration.experts_within : calibration.dense_within;
    const double width = std::exp(1.41 * within * std::sqrt(1 + 1 / static_cast<double>(runs)));
    out.least_seconds = out.step_seconds / width;
    out.most_seconds = out.step_seconds * width;
    return out;
  }
};

} // namespace plan_example
