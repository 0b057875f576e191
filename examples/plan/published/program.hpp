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
#include <optional>
#include <string_view>
#include <utility>

namespace plan_example {

using namespace shardwright;

/// @brief Programs that the constants are fitted to, each by a word that sources or notes of its runs hold:
/// their authors tuned them for their chips, so that their times need no factor. The first word that is found
/// counts; a run of one that has no name here is no such program's.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 16> named_programs{{
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
    {"torchtitan", "torchtitan"},
    {"llm-foundry", "llm-foundry"},
    {"internevo", "internevo"},
    {"fms-fsdp", "fms-fsdp"},
}};

namespace detail {

/// Returns whether two letters are the same but for their case.
[[nodiscard]] constexpr bool same_letter(char left, char right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return lower(left) == lower(right);
}

/// Returns whether a text holds a word, with neither a letter nor a digit beside it.
[[nodiscard]] constexpr bool holds_word(std::string_view text, std::string_view word) {
  const auto ends = [](char c) {
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'));
  };
  for (auto at = text.begin();; ++at) {
    at = std::search(at, text.end(), word.begin(), word.end(), same_letter);
    if (at == text.end() || word.empty())
      return false;
    const auto after = at + static_cast<std::ptrdiff_t>(word.size());
    if ((at == text.begin() || ends(*(at - 1))) && (after == text.end() || ends(*after)))
      return true;
  }
}

/// The name of the first program that a text holds a word of, and with `by_name` also the name.
[[nodiscard]] constexpr std::optional<std::string_view> program_in(std::string_view text,
                                                                   bool by_name = false) {
  for (const auto& [word, name] : named_programs)
    if (holds_word(text, word) || (by_name && holds_word(text, name)))
      return name;
  return {};
}

} // namespace detail

/// @brief Returns whether a text holds a word, after which more letters may follow ("norms", "Overlapped").
[[nodiscard]] constexpr bool names_word(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), detail::same_letter) != text.end();
}

/// @brief The name of a program of `named_programs` by the source of a run, or if that names none by its
/// notes; empty if neither does. Recipes of dgxc-benchmarking run NeMo unless notes name another program.
[[nodiscard]] constexpr std::string_view program_named_in(std::string_view source, std::string_view notes) {
  if (const auto name = detail::program_in(source))
    return *name;
  if (const auto name = detail::program_in(notes))
    return *name;
  return detail::holds_word(source, "dgxc-benchmarking") ? "nemo" : std::string_view{};
}

/// @brief The name of a program of `named_programs` by what a user calls it, such as "Megatron-LM"; empty if
/// it is none of them.
[[nodiscard]] constexpr std::string_view program_called(std::string_view text) {
  return detail::program_in(text, true).value_or(std::string_view{});
}

/// @brief A step with every time multiplied by a factor.
[[nodiscard]] constexpr StepCost slowed(StepCost cost, double factor) noexcept {
  const auto slow = [factor](TrafficCost& one) {
    one = {one.bytes, factor * one.seconds, factor * one.exposed_seconds};
  };
  for (TrafficCost& one : cost.traffic)
    slow(one);
  slow(cost.reduction);
  for (double StepCost::*seconds :
       {&StepCost::matmul_seconds, &StepCost::attention_seconds, &StepCost::elementwise_seconds,
        &StepCost::overhead_seconds, &StepCost::optimizer_seconds, &StepCost::imbalance_seconds,
        &StepCost::bubble_seconds, &StepCost::straggler_seconds, &StepCost::step_seconds,
        &StepCost::least_seconds, &StepCost::most_seconds})
    cost.*seconds *= factor;
  for (double PassCosts::*seconds :
       {&PassCosts::forward, &PassCosts::input_gradient, &PassCosts::weight_gradient})
    cost.passes.*seconds *= factor;
  return cost;
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
    StepCost out = slowed(cost, factor);
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
