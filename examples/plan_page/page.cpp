// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Assembles a page, including the drawing of the schedule.

#include "page.hpp"

#include "sections.hpp"
#include "style.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

namespace plan_page {

namespace sw = shardwright;

namespace {

/// The schedule that a study calls `name`.
sw::PlanSchedule schedule_called(const std::string& name) {
  for (int number = 0; number < sw::plan_schedule_count; ++number)
    if (const auto schedule = static_cast<sw::PlanSchedule>(number); sw::schedule_name(schedule) == name)
      return schedule;
  throw sw::DataError("/plan/schedule must name a schedule, but it is '" + name + "'");
}

/// The pipeline of the study's plan: its extent, its schedule and its chunks.
sw::PlanConfiguration pipeline_of(const Document& study) {
  const sw::PlanConfiguration plan{.pp = study.at("/plan/pp").get<int>(),
                                   .chunks = study.at("/plan/chunks").get<int>(),
                                   .schedule = schedule_called(study.word("/plan/schedule"))};
  if (plan.pp < 1)
    throw sw::DataError("/plan/pp must be at least 1, but it is " + std::to_string(plan.pp));
  return plan;
}

/// A part of a pipeline that shows a schedule's warm-up, its steady state and its end.
struct DrawnPart {
  int ranks = 1;
  std::int64_t microbatches = 1;
};

/// The most ranks, up to eight, with at most 700 boxes, so that a page stays small.
DrawnPart drawn_part(const sw::PlanConfiguration& plan, std::int64_t microbatches) {
  constexpr std::int64_t most_boxes = 700;
  const int chunks = sw::chunks_of(plan.schedule, plan.chunks);
  DrawnPart least{plan.pp, microbatches};
  for (const int ranks : {std::min(plan.pp, 8), 4, 2})
    for (const std::int64_t each : {std::int64_t{2} * ranks, std::int64_t{ranks}, microbatches}) {
      if (ranks > plan.pp || each > microbatches ||
          !sw::rule_of(plan.schedule, ranks, static_cast<int>(each)).holds())
        continue;
      const std::int64_t boxes = ranks * each * chunks * 3;
      if (boxes <= most_boxes)
        return {ranks, each};
      if (boxes < std::int64_t{least.ranks} * least.microbatches * chunks * 3)
        least = {ranks, each};
    }
  return least;
}

/// A separate frame, so that the styles of drawing and page do not mix.
std::string schedule_section(const Document& study) {
  std::string out = "<h2 id=\"schedule\">The schedule</h2>\n";
  const sw::PlanConfiguration plan = pipeline_of(study);
  if (plan.pp == 1)
    return out + "<p>There is no pipeline: every rank runs its microbatches one after the other.</p>\n";
  const auto all = study.at("/plan/microbatches").get<std::int64_t>();
  const DrawnPart drawn = drawn_part(plan, all);
  const auto seconds = [&](const char* pass) { return study.figure(std::string("/passes/") + pass).value; };
  sw::StepCost cost;
  cost.passes = {seconds("forward"), seconds("input_gradient"), seconds("weight_gradient")};
  sw::PlanConfiguration part = plan;
  part.pp = drawn.ranks;
  const sw::Timetable table = sw::plan_timetable(part, {.sequences = drawn.microbatches}, cost);
  const auto of = [](std::int64_t some, std::int64_t whole) {
    return std::to_string(some) + (some < whole ? " of " + std::to_string(whole) : std::string());
  };
  const std::string svg =
      sw::draw_svg(std::span(&table, 1), {"One pipeline of " + of(drawn.ranks, plan.pp) + " ranks, " +
                                              of(drawn.microbatches, all) + " microbatches",
                                          study.word("/plan/text"), "s", 810});
  if (drawn.ranks < plan.pp || drawn.microbatches < all)
    out +=
        "<p>Drawn as if there were only these ranks and microbatches: the others repeat its middle, and the "
        "idle share depends on both numbers. <code>plan --svg</code> draws the whole schedule.</p>\n";
  const std::size_t height = svg.find(" height=\"") + 9;
  const double shown = std::min(std::strtod(svg.c_str() + height, nullptr) + 4, 1400.0);
  return out +
         "<iframe title=\"Drawing of the schedule\" style=\"height:" + std::to_string(std::lround(shown)) +
         "px\" srcdoc=\"" +
         escaped(
             "<!doctype html><style>:root{color-scheme:light dark}body{margin:0}svg{display:block}</style>" +
             svg) +
         "\"></iframe>\n";
}

} // namespace

std::string page_of(const nlohmann::ordered_json& study) {
  const Document document(study);
  const bool found = !document.has("/problem");
  const std::string title = document.word("/model") + " on " + document.word("/cluster");
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
                    escaped(title) + ": plan</title>\n<style>" + std::string(page_style) +
                    "</style></head>\n<body><main>\n";
  out += head_section(document);
  if (document.has("/ranks"))
    out += memory_section(document);
  if (found)
    out += time_section(document) + binding_section(document) + plans_section(document) +
           choice_section(document);
  out += sweeps_section(document);
  if (found)
    out += schedule_section(document);
  out += source_section(document);
  return out + "</main><script>" + std::string(page_script) + "</script></body></html>\n";
}

} // namespace plan_page
