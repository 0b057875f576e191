// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Assembles a page, including the drawing of the schedule.

#include "html_report.hpp"

#include "html_sections.hpp"
#include "html_style.hpp"
#include "study_json.hpp"

#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

namespace plan_example {

namespace sw = shardwright;

namespace {

/// Enough microbatches to show a schedule's warm-up, its steady state and its end.
std::int64_t drawn_microbatches(const sw::PlanConfiguration& plan, std::int64_t microbatches) {
  const std::int64_t enough = plan.pp * std::max<std::int64_t>(2, (8 + plan.pp - 1) / plan.pp);
  return enough < microbatches && sw::rule_of(plan.schedule, plan.pp, static_cast<int>(enough)).holds()
             ? enough
             : microbatches;
}

/// A separate frame, so that the styles of drawing and page do not mix.
std::string schedule_section(const Options& options, const sw::Plan& best) {
  std::string out = "<h2 id=\"schedule\">The schedule</h2>\n";
  const sw::PlanConfiguration& plan = best.configuration;
  if (plan.pp == 1)
    return out + "<p>There is no pipeline: every rank runs its microbatches one after the other.</p>\n";
  const std::int64_t at_once = static_cast<std::int64_t>(plan.dp) * plan.microbatch;
  const std::int64_t all = options.run.sequences / at_once, drawn = drawn_microbatches(plan, all);
  sw::RunSpec run = options.run;
  run.sequences = drawn * at_once;
  const sw::Timetable table = sw::plan_timetable(plan, run, best.cost);
  const std::string svg =
      sw::draw_svg(std::span(&table, 1),
                   {"One pipeline of " + std::to_string(plan.pp) + " ranks, " + std::to_string(drawn) +
                        (drawn < all ? " of " + std::to_string(all) : "") + " microbatches",
                    sw::plan_text(plan), "s", 810});
  if (drawn < all)
    out +=
        "<p>Drawn with " + std::to_string(drawn) + " of the " + std::to_string(all) +
        " microbatches of a step: the others repeat its middle, and the idle share falls with their number.</p>\n";
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

std::string html_report(const Options& options, const Study& study) {
  const nlohmann::ordered_json json = study_json(options, study);
  const Document document(json);
  const std::string title = document.word("/model") + " on " + document.word("/cluster");
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
                    escaped(title) + ": plan</title>\n<style>" + std::string(page_style) +
                    "</style></head>\n<body><main>\n";
  out += head_section(document);
  if (document.has("/ranks"))
    out += memory_section(document);
  if (study.best.found())
    out += time_section(document) + binding_section(document) + plans_section(document) +
           choice_section(document);
  out += sweeps_section(document);
  if (study.best.found())
    out += schedule_section(options, study.best);
  out += source_section(document);
  return out + "</main><script>" + std::string(page_script) + "</script></body></html>\n";
}

} // namespace plan_example
