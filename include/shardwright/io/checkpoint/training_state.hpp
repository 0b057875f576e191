// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Stores training progress as texts in a manifest.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/train/step/progress.hpp>

#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

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
  if (!progress.loss_scale)
    return;
  more["loss scale exponent"] = std::to_string(progress.loss_scale->exponent);
  more["loss scale good steps"] = std::to_string(progress.loss_scale->good_steps);
  more["loss scale overflows"] = std::to_string(progress.loss_scale->overflows);
}

SHARDWRIGHT_INLINE TrainingProgress progress_of(const std::map<std::string, std::string>& more) {
  const auto number = [&](const char* name) {
    const auto at = more.find(name);
    std::int64_t out = 0;
    const std::string text = at == more.end() ? std::string() : at->second;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (code != std::errc() || end != text.data() + text.size())
      throw DataError("checkpoint: '" + std::string(name) + "' must be a whole number, but it is " +
                      (at == more.end() ? "missing" : shardwright::detail::quoted_text(text)) +
                      " (was it saved by a training run?)");
    return out;
  };
  TrainingProgress out{number("steps"), number("optimizer steps"), number("skipped in a row"), {}};
  if (more.contains("loss scale exponent"))
    out.loss_scale = {static_cast<std::int32_t>(number("loss scale exponent")),
                      number("loss scale good steps"), number("loss scale overflows")};
  return out;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
