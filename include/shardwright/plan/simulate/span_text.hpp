// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Short names of the spans and ranks of a simulated step.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/schedule/action.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// "F3 s1", or two such names if a step overlaps two passes.
[[nodiscard]] inline std::string step_text(const Step& step) {
  std::string out;
  for (int i = 0; i < step.size(); ++i)
    out += (i == 0 ? "" : " & ") + std::string(1, letter_of(step[i].pass)) +
           std::to_string(step[i].microbatch) + " s" + std::to_string(step[i].stage);
  return out;
}

[[nodiscard]] inline std::string span_text(const ActivitySpan& span) {
  const std::string name(activity_names[static_cast<std::size_t>(span.activity)]);
  return span.activity == Activity::compute ? step_text(span.step)
         : span.has_step                    ? name + ", " + step_text(span.step)
                                            : name;
}

} // namespace detail

/// @brief "rank 0 and 127 alike"
[[nodiscard]] inline std::string class_text(const RankClass& one) {
  return "rank " + std::to_string(one.rank) +
         (one.count > 1 ? " and " + std::to_string(one.count - 1) + " alike" : std::string());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
