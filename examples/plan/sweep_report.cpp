// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A sweep as a table.

#include "parts.hpp"
#include "report.hpp"
#include "short_text.hpp"

#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <algorithm>
#include <vector>

namespace plan_example {

namespace sw = shardwright;

namespace {

using Row = std::vector<std::string>;

std::string percent(double share) { return sw::number_text(100 * share, 1); }

/// Rows with aligned cells: numbers to the right, the last column unpadded.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      out += std::string(widths[i] - row[i].size(), ' ') + row[i] + "  ";
    out += row.back() + "\n";
  }
  return out;
}

} // namespace

std::string sweep_report(const Options& options, const sw::Sweep& sweep) {
  const Unit unit = unit_of(sweep.resource);
  const double now = sw::amount_of({options.cluster, options.run}, sweep.resource);
  const auto text = [&](double amount) { return short_text(amount / unit.size) + " " + unit.name; };
  std::vector<Row> rows{{unit.name, "pp", "s", "MFU %", "without", "best plan"}};
  for (const sw::SweepPoint& point : sweep.points) {
    const sw::Plan &best = point.best, &flat = point.without_pipeline;
    Row row{short_text(sweep.amount(point) / unit.size) + (point.factor == 1 ? " *" : "  ")};
    if (best.found())
      row.insert(row.end(), {std::to_string(best.configuration.pp), short_text(best.cost.step_seconds),
                             percent(best.cost.mfu(sw::FlopsConvention::causal)),
                             flat.found() ? percent(flat.cost.mfu(sw::FlopsConvention::causal)) : "-",
                             sw::plan_text(best.configuration)});
    else
      row.insert(row.end(), {"-", "-", "-", "-", std::string(sw::problem_text(best.problem))});
    rows.push_back(row);
  }
  const bool any = std::any_of(sweep.points.begin(), sweep.points.end(), [](const sw::SweepPoint& point) {
    return point.best.found() && point.best.configuration.pp > 1;
  });
  std::string out = headline(options) + "\nover " + unit.title + "; * is the " + text(now) +
                    " that there are\nMFU is causal, \"without\" that of the best plan without a pipeline\n";
  out += aligned(rows);
  if (sweep.pipeline_ends) {
    const sw::Situation there =
        sw::with_more({options.cluster, options.run}, sweep.resource, *sweep.pipeline_ends);
    return out + "no pipeline is needed from " + text(sw::amount_of(there, sweep.resource)) + " on\n";
  }
  return out +
         (any ? "a pipeline is needed up to the last of them\n" : "no pipeline is needed at any of them\n");
}

} // namespace plan_example
