// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Stores training progress as texts in a manifest.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/train/step/progress.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {
/// Followed by the group's number.
inline constexpr std::string_view factor_name = "learning rate factor of group ";
} // namespace detail

/// @brief Adds training progress to a checkpoint's description.
void add_progress(std::map<std::string, std::string>& more, const TrainingProgress& progress);

/// @brief The progress that add_progress() added.
/// @throws DataError naming a value that is missing or not a number.
[[nodiscard]] TrainingProgress progress_of(const std::map<std::string, std::string>& more);

#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
SHARDWRIGHT_INLINE void add_progress(std::map<std::string, std::string>& more,
                                     const TrainingProgress& progress) {
  more["steps"] = std::to_string(progress.steps);
  more["optimizer steps"] = std::to_string(progress.optimizer_steps);
  more["skipped in a row"] = std::to_string(progress.skipped_in_a_row);
  for (const auto& [group, factor] : progress.factors) {
    std::array<char, 32> text{};
    const auto [end, code] = std::to_chars(text.data(), text.data() + text.size(), factor);
    more[std::string(detail::factor_name) + std::to_string(group)] = std::string(text.data(), end);
  }
  if (!progress.loss_scale)
    return;
  more["loss scale exponent"] = std::to_string(progress.loss_scale->exponent);
  more["loss scale good steps"] = std::to_string(progress.loss_scale->good_steps);
  more["loss scale overflows"] = std::to_string(progress.loss_scale->overflows);
}

SHARDWRIGHT_INLINE TrainingProgress progress_of(const std::map<std::string, std::string>& more) {
  const auto parsed = [](const std::string& name, const std::string* given, auto out, const char* kind) {
    const std::string text = given != nullptr ? *given : std::string();
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (code != std::errc() || end != text.data() + text.size())
      throw DataError("checkpoint: '" + name + "' must be a " + kind + ", but it is " +
                      (given == nullptr ? "missing" : shardwright::detail::quoted_text(text)) +
                      " (was it saved by a training run?)");
    return out;
  };
  const auto number = [&](const char* name) {
    const auto at = more.find(name);
    return parsed(name, at == more.end() ? nullptr : &at->second, std::int64_t{}, "whole number");
  };
  TrainingProgress out{number("steps"), number("optimizer steps"), number("skipped in a row"), {}, {}};
  for (const auto& [name, text] : more)
    if (name.starts_with(detail::factor_name)) {
      const std::string group = name.substr(detail::factor_name.size());
      out.factors[parsed(name, &group, std::size_t{}, "name with the number of a group")] =
          parsed(name, &text, double{}, "number");
    }
  if (more.contains("loss scale exponent"))
    out.loss_scale = {static_cast<std::int32_t>(number("loss scale exponent")),
                      number("loss scale good steps"), number("loss scale overflows")};
  return out;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
