// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timelines of a simulated step as a trace that Perfetto and Chrome open.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/number_text.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// "F3 s1", or two of them where a step overlaps them.
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

/// @brief The text of a trace in the Chrome trace-event format, one process per replica whose timeline was
/// kept.
///
/// Every rank has two tracks: what it does, passes such as "F3 s1", traffic and waits in categories of these
/// names; and what runs beside that. Open it at ui.perfetto.dev or chrome://tracing.
[[nodiscard]] inline std::string step_trace(const StepSimulation& simulation) {
  constexpr std::array<std::string_view, activity_names.size()> colours{"thread_state_running",
                                                                        "rail_idle",
                                                                        "rail_response",
                                                                        "rail_load",
                                                                        "rail_animation",
                                                                        "good",
                                                                        "bad",
                                                                        "thread_state_iowait",
                                                                        "grey",
                                                                        "thread_state_runnable"};
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first = true;
  const auto event = [&](const std::string& fields) {
    out += (first ? "\n{" : ",\n{") + fields + "}";
    first = false;
  };
  int process = -1;
  for (const RankClass& one : simulation.classes) {
    if (one.timeline.empty())
      continue;
    if (one.pipeline_rank == 0)
      event("\"ph\":\"M\",\"pid\":" + std::to_string(++process) +
            ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"replica of rank " +
            std::to_string(one.rank) + "\"}");
    const std::string where = "\"pid\":" + std::to_string(process) + ",\"tid\":";
    for (const bool beside : {false, true})
      event("\"ph\":\"M\"," + where + std::to_string(2 * one.pipeline_rank + (beside ? 1 : 0)) +
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"stage " + std::to_string(one.pipeline_rank) +
            ", " + (beside ? "beside" : class_text(one)) + "\"}");
    for (const ActivitySpan& span : one.timeline) {
      const auto kind = static_cast<std::size_t>(span.activity);
      event("\"ph\":\"X\"," + where + std::to_string(2 * one.pipeline_rank + (span.beside ? 1 : 0)) +
            ",\"ts\":" + number_text(1e6 * span.begin, 3) +
            ",\"dur\":" + number_text(1e6 * (span.end - span.begin), 3) + ",\"cat\":\"" +
            std::string(activity_names[kind]) + "\",\"name\":\"" + detail::span_text(span) +
            "\",\"cname\":\"" + std::string(colours[kind]) + "\"");
    }
  }
  return out + "\n]}\n";
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
