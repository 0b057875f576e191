// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Predicted and measured step times of published runs compared, row by row and in summary.

#include <plan/published/case.hpp>
#include <plan/published/program.hpp>
#include <plan/published/run.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/step_cost.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace plan_example {

using namespace shardwright;

/// @brief One published run and the planner's prediction for it.
struct RunOutcome {
  std::string id{};
  std::string source{};
  RunCase run{};      ///< `run.not_handled` says why there is no cost.
  StepCost cost{};    ///< Only if the row is handled.
  bool timed = false; ///< Whether its source gives a step time or tokens/s.

  [[nodiscard]] bool handled() const noexcept { return run.not_handled.empty(); }
  /// @brief Returns whether the published configuration obeys all rules, not counting memory, as far as the
  /// row describes it.
  [[nodiscard]] bool legal() const noexcept {
    return handled() && (cost.problem == PlanProblem::none || cost.problem == PlanProblem::out_of_memory);
  }
  /// @brief The cost without the factor of a program; only if the row is handled.
  [[nodiscard]] StepCost unscaled() const { return evaluate(run.model, run.cluster, run.run, run.plan); }
  /// @brief Predicted over measured time, minus one; only if the planner handles the run and its time was
  /// published.
  [[nodiscard]] double error() const noexcept { return cost.step_seconds / run.measured_seconds - 1; }
};

/// @brief Evaluates every row; programs that are not named are as slow as such programs usually are.
/// @throws DataError naming the line and field of an invalid cell.
[[nodiscard]] inline std::vector<RunOutcome> evaluate_runs(std::span<const PublishedRun> rows) {
  std::vector<RunOutcome> outcomes;
  outcomes.reserve(rows.size());
  for (const PublishedRun& row : rows) {
    RunOutcome& one = outcomes.emplace_back();
    one.id = row.text("id");
    one.source = row.text("source");
    one.run = read_run_case(row);
    one.timed = !row.text("step_time_s").empty() || !row.text("tokens_per_s_per_chip").empty();
    if (one.handled())
      one.cost = one.run.program.empty() ? ProgramFactor{}.of(one.unscaled(), one.run.model) : one.unscaled();
  }
  return outcomes;
}

/// @brief Why a run is not compared; empty if it is.
[[nodiscard]] inline std::string not_compared(const RunOutcome& one) {
  return !one.handled() ? one.run.not_handled
         : !one.timed   ? "neither a step time nor tokens/s were published"
                        : std::string();
}

/// @brief The factor of a program, from measured runs of it, for plans with their kernels of attention:
/// FlashAttention-2 if all of them have it.
/// @throws DataError if there are no runs, or one cannot be compared, naming it.
[[nodiscard]] inline ProgramFactor program_factor(std::span<const RunOutcome> runs) {
  std::vector<double> ratios;
  bool flash_2 = true;
  for (const RunOutcome& one : runs) {
    std::string reason = not_compared(one);
    if (reason.empty() && !one.legal())
      reason = problem_text(one.cost.problem);
    if (!reason.empty())
      throw DataError("every run must be described and timed so that it can be compared, but " +
                      shardwright::detail::quoted_text(one.id) + " is not: " + reason +
                      " (complete or remove its row)");
    ratios.push_back(one.run.measured_seconds / one.unscaled().step_seconds);
    flash_2 = flash_2 && one.run.run.flash_2;
  }
  if (ratios.empty())
    throw DataError("there must be at least one run (add a row)");
  std::sort(ratios.begin(), ratios.end());
  return {(ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2, ratios.size(), flash_2};
}

/// @brief The `share` quantile of the values, rounded to the nearest of them.
[[nodiscard]] inline double quantile(std::span<const double> all, double share) {
  if (all.empty())
    return 0;
  std::vector<double> values(all.begin(), all.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// @brief Errors of a group of runs.
struct ErrorSummary {
  std::size_t rows = 0;
  double bias = 0;      ///< Median of the signed errors.
  double median = 0;    ///< Of their sizes.
  double ninetieth = 0; ///< Ninetieth percentile of their sizes.
};
[[nodiscard]] inline ErrorSummary summary_of(std::span<const double> errors) {
  std::vector<double> sizes;
  for (const double error : errors)
    sizes.push_back(std::fabs(error));
  return {errors.size(), quantile(errors, 0.5), quantile(sizes, 0.5), quantile(sizes, 0.9)};
}

} // namespace plan_example
