// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Splits the world's timelines into pipelines, and writes them as a trace and as a drawing.

#include "timelines.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/pipeline_trace.hpp>
#include <shardwright/io/write_text.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>
#include <shardwright/schedule/text/timetable.hpp>
#include <shardwright/schedule/timetable.hpp>
#include <shardwright/train/pipeline/measured_timetable.hpp>

#include <array>
#include <cstddef>
#include <iostream>
#include <string>

namespace trainer {

namespace {

namespace sw = shardwright;

/// One pipeline for each rank of a stage's mesh; pp is the outermost axis of the whole.
std::vector<sw::PipelineTrace> pipelines_of(const RunOptions& options, const sw::Schedule& schedule,
                                            const std::vector<sw::RankTimeline>& world) {
  const int tensor_ranks = options.extent("tp");
  const int context_ranks = options.extent("cp");
  const int pipelines = options.data_ranks() * context_ranks * tensor_ranks;
  std::vector<sw::PipelineTrace> out;
  for (int i = 0; i < pipelines; ++i) {
    out.push_back({"pipeline dp=" + std::to_string(i / tensor_ranks / context_ranks) +
                       (context_ranks > 1 ? ", cp=" + std::to_string(i / tensor_ranks % context_ranks)
                                          : std::string()) +
                       ", tp=" + std::to_string(i % tensor_ranks),
                   schedule.placement(),
                   schedule.microbatches(),
                   {}});
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      out.back().ranks.push_back(world[static_cast<std::size_t>(rank * pipelines + i)]);
  }
  return out;
}

std::string drawing_of(const sw::Schedule& schedule, const sw::PipelineTrace& pipeline) {
  const sw::Timetable measured =
      sw::measured_timetable(pipeline.ranks, pipeline.placement, pipeline.microbatches, 1e-3);
  const sw::PassCosts costs = sw::mean_costs(measured);
  const std::array<sw::Timetable, 2> tables{sw::planned_timetable(schedule, costs), measured};
  const auto both = [&](double planned, double measured, int digits) {
    return sw::number_text(planned, digits) + " planned, " + sw::number_text(measured, digits) + " measured";
  };
  const auto share = [](const sw::Timetable& table) { return 100 * table.bubble() / table.makespan(); };
  return sw::draw_svg(tables, {sw::title_text(schedule) + ", planned and measured",
                               "makespan in ms " + both(tables[0].makespan(), measured.makespan(), 2) +
                                   "; bubble in % " + both(share(tables[0]), share(measured), 1) +
                                   "; planned with the mean of each pass",
                               "ms"});
}

} // namespace

void write_timelines(const RunOptions& options, const sw::Schedule& schedule,
                     const std::vector<sw::RankTimeline>& world) {
  const std::vector<sw::PipelineTrace> pipelines = pipelines_of(options, schedule, world);
  const auto write = [](const std::filesystem::path& path, const std::string& text) {
    try {
      sw::write_text(path, text);
    } catch (const sw::DataError& error) {
      std::cerr << "Warning: timeline: " << error.what() << "; training continues without it" << std::endl;
    }
  };
  if (!options.timeline.empty())
    write(options.timeline, sw::trace_events(pipelines));
  if (!options.timeline_svg.empty())
    write(options.timeline_svg, drawing_of(schedule, pipelines.front()));
}

} // namespace trainer
