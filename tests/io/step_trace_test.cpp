// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/io/step_trace.hpp>

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace {

namespace sw = shardwright;

/// Two replicas of one stage, the second of which is kept too, and a rank whose timeline was not requested.
sw::StepSimulation two_replicas() {
  const sw::Step forward{sw::Action{sw::Pass::forward, 3, 1}};
  sw::StepSimulation out;
  for (const int rank : {0, 4}) {
    sw::RankClass one{.pipeline_rank = 0, .rank = rank, .count = rank == 0 ? 2 : 1};
    one.timeline = {{sw::Activity::compute, forward, true, false, 0, 0.25},
                    {sw::Activity::tensor, forward, true, true, 0.125, 0.5}};
    out.classes.push_back(one);
  }
  out.classes.push_back({.pipeline_rank = 0, .rank = 8, .count = 1});
  return out;
}

} // namespace

TEST_CASE("A simulated step's trace has a process for each kept replica and two tracks for each rank") {
  const nlohmann::json trace = nlohmann::json::parse(sw::step_trace(two_replicas()));
  std::map<int, std::string> processes;
  std::map<std::string, int> tracks;
  int computes = 0;
  int transfers = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name")
      processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name" && event.at("pid") == 0)
      tracks[event.at("args").at("name")] = event.at("tid");
    if (event.at("ph") != "X")
      continue;
    if (event.at("tid") == 0) {
      ++computes;
      CHECK(event.at("ts") == 0.0);
      CHECK(event.at("dur") == 250000.0);
      CHECK(event.at("name") == sw::detail::span_text(two_replicas().classes[0].timeline[0]));
    } else {
      ++transfers;
      CHECK(event.at("ts") == 125000.0);
      CHECK(event.at("dur") == 375000.0);
      CHECK(event.at("cat") == "tensor");
    }
  }
  CHECK(processes == std::map<int, std::string>{{0, "replica of rank 0"}, {1, "replica of rank 4"}});
  CHECK(tracks == std::map<std::string, int>{{"stage 0, rank 0 and 1 alike", 0}, {"stage 0, beside", 1}});
  CHECK(computes == 2);
  CHECK(transfers == 2);
}
