// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The timelines of pipelines as a trace for Perfetto and Chrome.

#include <shardwright/io/trace_events.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/timetable.hpp>
#include <shardwright/train/pipeline/measured_timetable.hpp>
#include <shardwright/train/pipeline/timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The ranks of one pipeline and what they did.
struct PipelineTrace {
  std::string name; ///< Such as "pipeline dp=0, tp=1".
  StagePlacement placement{};
  int microbatches = 0;
  std::vector<RankTimeline> ranks;
};

namespace detail {

[[nodiscard]] inline bool is_background(PipelineWork work) {
  return work == PipelineWork::reduction || work == PipelineWork::gather;
}

/// The track of a rank's communication that runs alongside its passes.
[[nodiscard]] inline int background_track(const PipelineTrace& trace, PipelineWork work, int rank) {
  const int ranks = static_cast<int>(trace.ranks.size());
  return ranks + 2 * rank + (work == PipelineWork::gather ? 1 : 0);
}

/// The slices of one rank; "F3 s1" is the forward pass of microbatch 3 through stage 1.
inline void add_slices(TraceEvents& out, const PipelineTrace& trace, int process, int rank) {
  static constexpr const char* works[] = {"", "wait for ", "send wait "};
  static constexpr const char* kinds[] = {"compute", "wait_input", "wait_send"};
  static constexpr const char* colours[] = {"thread_state_running", "thread_state_iowait",
                                            "thread_state_runnable", "rail_animation"};
  for (const PipelineEvent& event : trace.ranks[static_cast<std::size_t>(rank)]) {
    const Action& action = event.action;
    if (is_background(event.work)) {
      const bool gather = event.work == PipelineWork::gather;
      out.slice(process, background_track(trace, event.work, rank), event.begin_seconds, event.end_seconds,
                gather ? "gather" : "reduction",
                (gather ? "gather " : "reduce ") + std::to_string(event.bytes / 1024) + " KiB",
                {{"bytes", event.bytes}});
      continue;
    }
    const auto work = static_cast<std::size_t>(event.work);
    const std::string pass(1, letter_of(action.pass));
    out.slice(process, rank, event.begin_seconds, event.end_seconds, kinds[work],
              works[work] + pass + std::to_string(action.microbatch) + " s" + std::to_string(action.stage),
              {{"pass", pass},
               {"stage", action.stage},
               {"microbatch", action.microbatch},
               {"chunk", trace.placement.chunk_of(action.stage, action.microbatch)}},
              work == 0 ? colours[static_cast<std::size_t>(action.pass)] : "grey");
  }
}

/// The number of microbatches whose activations a rank keeps, as a separate track.
inline void add_kept(TraceEvents& out, const Timetable& table, double origin, int process, int rank) {
  for (const KeptFrom& point : table.kept(rank))
    out.counter(process, origin + point.time, "in flight, rank " + std::to_string(rank), "microbatches",
                point.count);
}

/// Arrows from the pass that produced a message to the pass on another rank that needed it.
inline void add_arrows(TraceEvents& out, const PipelineTrace& trace, int process) {
  struct End {
    int rank = 0;
    double begin_seconds = 0;
    double end_seconds = 0;
  };
  std::map<std::pair<std::int64_t, bool>, End> passes; // forwards, and passes that make input gradients
  const auto key = [&](int stage, int microbatch) {
    return std::int64_t{stage} * trace.microbatches + microbatch;
  };
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (const PipelineEvent& event : trace.ranks[rank])
      if (event.work == PipelineWork::compute && event.action.pass != Pass::weight_gradient)
        passes[{key(event.action.stage, event.action.microbatch), event.action.pass == Pass::forward}] = {
            static_cast<int>(rank), event.begin_seconds, event.end_seconds};
  std::int64_t number = std::int64_t{process} << 32;
  for (const auto& [made, from] : passes) {
    const auto stage = static_cast<int>(made.first / trace.microbatches);
    const auto microbatch = static_cast<int>(made.first % trace.microbatches);
    const auto to = passes.find({key(stage + (made.second ? 1 : -1), microbatch), made.second});
    if (to == passes.end() || to->second.rank == from.rank)
      continue;
    // An arrow belongs to the slice that contains its time, so it starts just before the end of one.
    out.arrow(process, ++number, "message", made.second ? "activation" : "gradient", from.rank,
              std::max(from.begin_seconds, from.end_seconds - 1e-9), to->second.rank,
              to->second.begin_seconds);
  }
}

} // namespace detail

/// @brief The text of a trace in the Chrome trace-event format, one process per pipeline, one track per rank.
///
/// Slices are passes such as "F3 s1" and the waits between them, arrows are messages, and counters show how
/// many microbatches a rank keeps; reductions and gathers that overlapped the passes have their own tracks.
/// Open it at ui.perfetto.dev or chrome://tracing. Each pipeline's times are relative to its own start.
[[nodiscard]] inline std::string trace_events(std::span<const PipelineTrace> pipelines) {
  detail::TraceEvents events;
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    const PipelineTrace& trace = pipelines[i];
    const int process = static_cast<int>(i);
    events.name_process(process, trace.name);
    const Timetable table = measured_timetable(trace.ranks, trace.placement, trace.microbatches);
    for (int rank = 0; rank < static_cast<int>(trace.ranks.size()); ++rank) {
      std::string stages;
      for (int chunk = 0; chunk < trace.placement.chunks; ++chunk)
        stages += (chunk == 0 ? "" : ", ") + std::to_string(trace.placement.stage_of(rank, chunk));
      const std::string rank_text = "rank " + std::to_string(rank);
      events.name_track(process, rank, rank_text + ", stage " + stages);
      for (const PipelineWork work : {PipelineWork::reduction, PipelineWork::gather}) {
        const auto& own = trace.ranks[static_cast<std::size_t>(rank)];
        if (std::any_of(own.begin(), own.end(), [work](const auto& event) { return event.work == work; }))
          events.name_track(process, detail::background_track(trace, work, rank),
                            rank_text + (work == PipelineWork::gather ? ", gathers" : ", reductions"));
      }
      detail::add_slices(events, trace, process, rank);
      detail::add_kept(events, table, detail::first_pass_seconds(trace.ranks), process, rank);
    }
    detail::add_arrows(events, trace, process);
  }
  return events.text();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
