// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/io/pipeline_trace.hpp>
#include <shardwright/io/write_text.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;

/// The planned times of a schedule as if they had been measured, with a wait before each pass.
sw::PipelineTrace planned_trace(const sw::Schedule& schedule) {
  const sw::Timetable table = sw::planned_timetable(schedule);
  sw::PipelineTrace out{"pipeline <1> & \"2\"", schedule.placement(), schedule.microbatches(), {}};
  for (const auto& steps : table.ranks) {
    out.ranks.emplace_back();
    double now = 0;
    for (const sw::TimedStep& timed : steps) {
      if (timed.start > now)
        out.ranks.back().push_back({sw::PipelineWork::wait_input, timed.step.first, now, timed.start});
      out.ranks.back().push_back({sw::PipelineWork::compute, timed.step.first, timed.start, timed.end});
      now = timed.end;
    }
  }
  return out;
}

} // namespace

TEST_CASE("A trace has every pass, wait and message once, on the track of its rank") {
  for (const char* name : {"1f1b", "zbv", "interleaved"}) {
    const sw::Schedule schedule = sw::make_schedule(name, 3, 4);
    const std::array<sw::PipelineTrace, 2> pipelines{planned_trace(schedule), planned_trace(schedule)};
    const nlohmann::json trace = nlohmann::json::parse(sw::trace_events(pipelines));
    INFO(name);
    std::size_t slices = 0;
    std::size_t waits = 0;
    std::map<long long, std::vector<nlohmann::json>> arrows;
    std::set<std::string> tracks;
    std::map<std::string, int> highest;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      const std::string kind = event.at("ph");
      if (kind == "X" && event.at("pid") == 1) {
        slices += event.at("cat") == "compute" ? 1U : 0U;
        waits += event.at("cat") == "wait_input" ? 1U : 0U;
        const sw::Action action{event.at("args").at("pass") == "F" ? sw::Pass::forward : sw::Pass::backward,
                                event.at("args").at("stage"), event.at("args").at("microbatch")};
        CHECK(schedule.placement().rank_of(action.stage, action.microbatch) == event.at("tid"));
        const std::string label = event.at("args").at("pass").get<std::string>() +
                                  std::to_string(action.microbatch) + " s" + std::to_string(action.stage);
        CHECK(event.at("name") == (event.at("cat") == "compute" ? label : "wait for " + label));
      }
      if (kind == "s" || kind == "f")
        arrows[event.at("id")].push_back(event);
      if (kind == "M" && event.at("name") == "thread_name")
        tracks.insert(event.at("args").at("name"));
      if (kind == "M" && event.at("name") == "process_name")
        CHECK(event.at("args").at("name") == "pipeline <1> & \"2\"");
      if (kind == "C")
        highest[event.at("name")] =
            std::max(highest[event.at("name")], event.at("args").at("microbatches").get<int>());
    }
    std::size_t passes = 0;
    for (int rank = 0; rank < 3; ++rank)
      passes += schedule.steps(rank).size();
    CHECK(slices == passes);
    CHECK(waits > 0);
    CHECK(tracks.size() == 3);
    // In both directions over every boundary between ranks, for every microbatch of both pipelines.
    std::size_t boundaries = 0;
    for (int stage = 1; stage < schedule.stages(); ++stage)
      boundaries +=
          schedule.placement().rank_of(stage, 0) != schedule.placement().rank_of(stage - 1, 0) ? 1U : 0U;
    CHECK(arrows.size() == 2 * 2 * 4 * boundaries);
    for (const auto& [id, ends] : arrows) {
      REQUIRE(ends.size() == 2);
      CHECK(ends[0].at("ph") == "s");
      CHECK(ends[1].at("bp") == "e");
      CHECK(ends[0].at("tid") != ends[1].at("tid"));
      CHECK(ends[0].at("ts").get<double>() <= ends[1].at("ts").get<double>());
    }
    const sw::Timetable table = sw::planned_timetable(schedule);
    for (int rank = 0; rank < 3; ++rank)
      CHECK(highest.at("in flight, rank " + std::to_string(rank)) == table.peak(rank));
  }
}

TEST_CASE("Reductions and gathers have separate tracks beside the passes") {
  const sw::Schedule schedule = sw::make_schedule("1f1b", 2, 2);
  sw::PipelineTrace pipeline = planned_trace(schedule);
  pipeline.ranks[1].push_back({sw::PipelineWork::reduction, {}, 2.5, 3, 4096});
  pipeline.ranks[1].push_back({sw::PipelineWork::gather, {}, 0.5, 1, 2048});
  const nlohmann::json trace = nlohmann::json::parse(sw::trace_events(std::span(&pipeline, 1)));
  std::map<std::string, nlohmann::json> slices;
  std::map<int, std::string> tracks;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("cat") != "compute" && event.at("cat") != "wait_input")
      slices[event.at("cat")] = event;
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      tracks[event.at("tid")] = event.at("args").at("name");
  }
  REQUIRE(slices.size() == 2);
  CHECK(slices["reduction"].at("name") == "reduce 4 KiB");
  CHECK(slices["gather"].at("name") == "gather 2 KiB");
  CHECK(slices["gather"].at("ts") == 0.5e6);
  CHECK(tracks.size() == 4);
  CHECK(tracks[slices["reduction"].at("tid")] == "rank 1, reductions");
  CHECK(tracks[slices["gather"].at("tid")] == "rank 1, gathers");
}
