// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The sections of a page about other sizes: utilisation over sweeps, and where the pipeline ends.

#include "chart.hpp"
#include "sections.hpp"

#include <shardwright/schedule/text/number_text.hpp>

#include <cmath>

namespace plan_page {

namespace sw = shardwright;

namespace {

std::string amount_text(const Document& study, const std::string& sweep, double amount) {
  const std::string unit = study.word(sweep + "/unit");
  return short_text(amount / study.figure(sweep + "/unit_size").value) + " " + unit;
}

Line line_of(const Document& study, const std::string& sweep, const std::string& which, std::string name,
             std::string kind) {
  Line line{std::move(name), std::move(kind), {{}}};
  for (std::size_t i = 0; i < study.at(sweep + "/points").size(); ++i) {
    const std::string at = sweep + "/points/" + std::to_string(i), plan = at + "/" + which;
    if (study.has(plan + "/problem")) {
      if (!line.runs.back().empty())
        line.runs.emplace_back();
      continue;
    }
    const Figure x = study.figure(at + "/amount"), y = study.figure(plan + "/mfu_causal");
    line.runs.back().push_back({x, y,
                                amount_text(study, sweep, x.value) + ": MFU " + sw::percent_text(y.value) +
                                    ", " + short_text(study.figure(plan + "/step_seconds").value) + " s, " +
                                    study.word(plan + "/plan")});
  }
  return line;
}

std::string points_table(const Document& study, const std::string& sweep) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < study.at(sweep + "/points").size(); ++i) {
    const std::string at = sweep + "/points/" + std::to_string(i);
    std::vector<std::string> row{
        study.number(at + "/amount", study.figure(sweep + "/unit_size").value, study.word(sweep + "/unit"))};
    if (study.has(at + "/best/problem"))
      row.insert(row.end(), {"", "", "", "", escaped(study.word(at + "/best/problem"))});
    else
      row.insert(row.end(), {study.number(at + "/best/pp"), study.number(at + "/best/step_seconds"),
                             study.percent(at + "/best/mfu_causal"),
                             study.has(at + "/without_pipeline/problem")
                                 ? "none"
                                 : study.percent(at + "/without_pipeline/mfu_causal"),
                             "<code>" + escaped(study.word(at + "/best/plan")) + "</code>"});
    rows.push_back(row);
  }
  return "<details><summary>As a table</summary>" +
         table("Best plans over " + study.word(sweep + "/title"),
               {"Amount", "pp", "step, s", "MFU, causal", "without a pipeline", "plan"}, rows) +
         "</details>\n";
}

std::string sweep_chart(const Document& study, const std::string& sweep, bool wide) {
  const double unit = study.figure(sweep + "/unit_size").value;
  LineChart chart{"Utilisation over " + study.word(sweep + "/title"),
                  study.word(sweep + "/title") +
                      (study.word(sweep + "/unit") == "chips" ? "" : ", " + study.word(sweep + "/unit")),
                  "MFU, causal, %",
                  unit,
                  wide,
                  {},
                  {},
                  {},
                  {},
                  "pp"};
  chart.lines.push_back(line_of(study, sweep, "best", "best plan", "best"));
  chart.lines.push_back(line_of(study, sweep, "without_pipeline", "best without a pipeline", "flat"));
  if (wide && study.has("/sweep_with_1f1b"))
    chart.lines.push_back(line_of(study, "/sweep_with_1f1b", "best", "best with 1F1B", "plain"));
  for (std::size_t i = 0; i < study.at(sweep + "/points").size(); ++i) {
    const std::string at = sweep + "/points/" + std::to_string(i);
    const double x = study.figure(at + "/amount").value,
                 doublings = std::log2(study.figure(at + "/factor").value);
    if (!wide || doublings == std::round(doublings))
      chart.ticks.push_back({x, short_text(x / unit)});
    chart.feet.push_back(
        {x, study.has(at + "/best/pp") ? std::to_string(study.at(at + "/best/pp").get<int>()) : "-"});
  }
  const double now = study.figure(sweep + "/now").value;
  chart.markers.push_back({now, "now: " + amount_text(study, sweep, now), "now"});
  const auto ends = [&](const std::string& of, const std::string& words) {
    if (study.has(of + "/pipeline_ends_amount")) {
      const double amount = study.figure(of + "/pipeline_ends_amount").value;
      chart.markers.push_back({amount, words + amount_text(study, sweep, amount), "ends"});
    }
  };
  ends(sweep, "no pipeline from ");
  if (wide && study.has("/sweep_with_1f1b") && !study.has(sweep + "/pipeline_ends_amount"))
    ends("/sweep_with_1f1b", "no 1F1B pipeline from ");
  return draw(chart);
}

std::string turns_table(const Document& study, const std::string& at, const std::string& caption) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < study.at(at).size(); ++i) {
    const std::string one = at + "/" + std::to_string(i), unit = study.word(one + "/unit");
    const double size = study.figure(one + "/unit_size").value;
    rows.push_back({escaped(study.word(one + "/resource")), study.number(one + "/now", size, unit),
                    !study.has(one + "/amount")        ? "not up to 64 times"
                    : study.at(one + "/factor") == 1.0 ? "already now"
                                                       : study.number(one + "/amount", size, unit),
                    study.has(one + "/factor") && study.at(one + "/factor") > 1.0
                        ? study.number(one + "/factor") + " times"
                        : ""});
  }
  return rows.empty() ? std::string() : table(caption, {"More of", "now", "from", ""}, rows);
}

/// Whether a sweep has any plan.
bool has_plans(const Document& study, const std::string& sweep) {
  for (const auto& point : study.at(sweep + "/points"))
    if (!point.at("best").contains("problem"))
      return true;
  return false;
}

/// The sweeps from a given one on, in two columns; those without a plan in a sentence.
std::string many_sweeps(const Document& study, std::size_t from) {
  std::string out = "<div class=\"pair\">\n", none;
  for (std::size_t i = from; i < study.at("/sweeps").size(); ++i) {
    const std::string at = "/sweeps/" + std::to_string(i);
    if (!has_plans(study, at)) {
      const std::string last = at + "/points/" + std::to_string(study.at(at + "/points").size() - 1);
      const double unit = study.figure(at + "/unit_size").value;
      none += "<p>No plan at any of " + study.number(at + "/points/0/amount", unit) + " to " +
              study.number(last + "/amount", unit, study.word(at + "/unit")) + ": " +
              escaped(study.word(at + "/title")) + ".</p>\n";
      continue;
    }
    out += "<div class=\"small\"><h3>" + escaped(study.word(at + "/title")) + "</h3>" +
           chart_figure(sweep_chart(study, at, false), "") + points_table(study, at) + "</div>\n";
  }
  return out + "</div>\n" + none;
}

} // namespace

std::string sweeps_section(const Document& study) {
  if (study.at("/sweeps").empty())
    return {};
  if (study.has("/problem"))
    return "<h2 id=\"sweeps\">What would give a plan</h2>\n" +
           turns_table(study, "/turns", "With this change only, there is a plan") +
           "<p>The numbers below each axis are the ranks of the best plan's pipeline; - means no plan.</p>\n" +
           many_sweeps(study, 0);
  std::string out = "<h2 id=\"sweeps\">When is a pipeline unnecessary?</h2>\n";
  if (study.has("/sweep_with_1f1b"))
    out +=
        "<p>The plan's schedule runs a forward pass beside a backward pass, which hides the traffic of experts. "
        "With 1F1B, a pipeline helps only with memory and data-parallel traffic: the third line.</p>\n";
  out += chart_figure(sweep_chart(study, "/sweeps/0", true),
                      "Best plans over " + escaped(study.word("/sweeps/0/title")) +
                          "; below the axis the ranks of their pipelines (pp).") +
         points_table(study, "/sweeps/0");
  out += turns_table(study, "/turns", "With this change only, the best plan has no pipeline") +
         turns_table(study, "/turns_with_1f1b",
                     "With this change only, the best plan with 1F1B has no pipeline");
  return out + many_sweeps(study, 1);
}

} // namespace plan_page
