// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timelines of a simulated step as a trace that Perfetto and Chrome open.

#include <shardwright/io/trace_events.hpp>
#include <shardwright/plan/simulate/simulation.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The text of a trace in the Chrome trace-event format, one process per replica whose timeline was
/// kept.
///
/// Every rank has two tracks: its passes such as "F3 s1", traffic and waits, in categories of these names;
/// and the activities that overlap them. Open it at ui.perfetto.dev or chrome://tracing.
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
  detail::TraceEvents out;
  int process = -1;
  for (const RankClass& one : simulation.classes) {
    if (one.timeline.empty())
      continue;
    if (one.pipeline_rank == 0)
      out.name_process(++process, "replica of rank " + std::to_string(one.rank));
    const auto track = [&one](bool beside) { return 2 * one.pipeline_rank + (beside ? 1 : 0); };
    const std::string stage = "stage " + std::to_string(one.pipeline_rank) + ", ";
    out.name_track(process, track(false), stage + class_text(one));
    out.name_track(process, track(true), stage + "beside");
    for (const ActivitySpan& span : one.timeline) {
      const auto kind = static_cast<std::size_t>(span.activity);
      out.slice(process, track(span.beside), span.begin, span.end, activity_names[kind],
                detail::span_text(span), {}, colours[kind]);
    }
  }
  return out.text();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
