// SPDX-License-Identifier: Apache-2.0
// Fits the constants of the planner to published runs, and prints how well it predicts sources that it has
// not seen. scripts/fit_planner compiles and runs it; it fits the library's own evaluator. Files after
// --not-fitted count only in the intervals.

#include <plan/published/case.hpp>
#include <plan/published/validation.hpp>
#include <shardwright/plan/cost/evaluate.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace shardwright;
using namespace plan_example;

namespace {

/// All constants; the fitted ones are reached through `Parameter`.
struct Constants {
  std::array<ChipCalibration, 5> chips = chip_calibrations;
  SharedCalibration shared{};
};

/// A fitted constant: a round prior, its uncertainty (a standard deviation of its logarithm), and its bounds.
struct Parameter {
  const char* name;
  double SharedCalibration::*shared; ///< Null if it is `matmul` of `chip`.
  std::size_t chip;
  double prior, deviation, least, most;
};

const std::vector<Parameter> parameters{
    {"matmul.ampere", nullptr, 0, 0.85, 0.08, 0.6, 0.95},
    {"matmul.hopper", nullptr, 1, 0.75, 0.08, 0.5, 0.95},
    {"matmul.blackwell", nullptr, 2, 0.75, 0.08, 0.5, 0.95},
    {"attention_reached", &SharedCalibration::attention_reached, 0, 0.7, 0.3, 0.3, 1},
    {"eight_bit", &SharedCalibration::eight_bit, 0, 0.8, 0.2, 0.2, 1},
    {"rows_half", &SharedCalibration::rows_half, 0, 400, 0.5, 50, 3000},
    {"plain_traffic", &SharedCalibration::plain_traffic, 0, 1.5, 0.25, 1, 3},
    {"falls", &SharedCalibration::falls, 0, 0.02, 0.7, 0.001, 0.3},
    {"expert_seconds", &SharedCalibration::expert_seconds, 0, 0.006, 0.5, 1e-5, 3e-2},
    {"each_expert_seconds", &SharedCalibration::each_expert_seconds, 0, 0.0003, 0.5, 1e-6, 3e-3},
    {"behind_host", &SharedCalibration::behind_host, 0, 0.4, 0.5, 0.01, 1},
    {"biased_traffic", &SharedCalibration::biased_traffic, 0, 6, 0.4, 1, 30},
    {"step_seconds", &SharedCalibration::step_seconds, 0, 0.01, 0.7, 0.0001, 0.1},
    {"unknown_program", &SharedCalibration::unknown_program, 0, 1.1, 0.1, 0.8, 2},
    {"scan_flops", &SharedCalibration::scan_flops, 0, 40e12, 0.4, 5e12, 500e12},
};

double& value_of(Constants& constants, const Parameter& parameter) {
  return parameter.shared == nullptr ? constants.chips[parameter.chip].matmul
                                     : constants.shared.*parameter.shared;
}

Constants priors() {
  Constants constants;
  for (const Parameter& parameter : parameters)
    value_of(constants, parameter) = parameter.prior;
  return constants;
}

/// The share of the runs of another source that may be outside an interval on either side. It is below a
/// tenth so that about seven of ten runs are inside for every chip with ten of them.
constexpr double interval_outside = 0.08;

struct Row {
  RunCase run{};
  std::string source{};
  std::string id{};
  double seconds = 0; ///< Measured, or from the FLOP/s of its source.
  double weight = 1;
  bool timed = false; ///< Whether its source gives a step time or tokens/s: only these count as validation.
};

double predicted(const Constants& constants, const Row& row) {
  const auto generation = static_cast<std::size_t>(row.run.cluster.chip.generation);
  return evaluate(row.run.model, row.run.cluster, row.run.run, row.run.plan,
                  {constants.chips[generation], constants.shared})
             .step_seconds *
         (row.run.program.empty() ? constants.shared.unknown_program : 1);
}

/// The publisher and the project of a source: all submissions to a round of MLPerf, or all pages of a
/// repository.
std::string project_of(std::string_view source) {
  return std::string(source.substr(0, source.find(' ', source.find(' ') + 1)));
}

/// Runs that give only FLOP/s take part in the fit with half the weight, if they say what they count.
std::vector<Row> read_rows(const std::vector<const char*>& paths) {
  std::vector<Row> rows;
  for (const char* path : paths) {
    std::ifstream in(path);
    if (!in)
      throw DataError(std::string(path) + " cannot be read");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const PublishedRun& run : read_published_runs(text)) {
      Row row{read_run_case(run), project_of(run.text("source")), std::string(run.text("id"))};
      if (!row.run.not_handled.empty()) {
        if (!run.text("step_time_s").empty() || !run.text("tokens_per_s_per_chip").empty())
          std::printf("not handled: %s: %s\n", row.id.c_str(), row.run.not_handled.c_str());
        continue;
      }
      row.seconds = row.run.measured_seconds;
      row.timed = row.seconds > 0;
      const auto rate = run.number("measured_tflops_per_chip");
      const bool guessed = run.text("microbatch_size").empty() && row.run.plan.pp == 1;
      if (!row.timed) {
        if (!rate || guessed)
          continue;
        const StepCost cost = evaluate(row.run.model, row.run.cluster, row.run.run, row.run.plan);
        const StepFlops& counted = cost.flops_of(FlopsConvention::non_causal);
        const double flops = counted.model + (run.text("mfu_kind") == "HFU" ? counted.recomputed : 0);
        row.seconds = flops / (*rate * 1e12 * cost.chips);
      }
      rows.push_back(row);
    }
  }
  // A source with many rows counts more than one with few, but not in proportion.
  std::map<std::string, double> count;
  for (const Row& row : rows)
    ++count[row.source];
  for (Row& row : rows)
    row.weight = (row.timed ? 1 : 0.5) / std::sqrt(count[row.source]);
  return rows;
}

using Rows = std::vector<const Row*>;

/// Negative log of the posterior: errors of 12% are one deviation, large ones count linearly and then less.
double loss(const Constants& constants, const Rows& rows) {
  double sum = 0;
  for (const Row* row : rows) {
    const double error = std::fabs(std::log(predicted(constants, *row) / row->seconds));
    double cost = error < 0.06 ? error * error / 0.12 : error - 0.03;
    if (cost > 0.4)
      cost = 0.4 + 0.3 * (cost - 0.4);
    sum += row->weight * cost / 0.12;
  }
  Constants at = constants;
  for (const Parameter& parameter : parameters) {
    const double off = std::log(value_of(at, parameter) / parameter.prior) / parameter.deviation;
    sum += 0.5 * off * off;
  }
  return sum;
}

/// The weight of an error's square that has the slope of its share of `loss`.
double square_weight(double error) {
  const double size = std::max(1e-9, std::fabs(error));
  const double slope = size < 0.06 ? size / 0.06 : size - 0.03 > 0.4 ? 0.3 : 1;
  return slope / (0.12 * size);
}

/// Normal equations: a symmetric matrix, and the right side.
struct Equations {
  std::vector<std::vector<double>> matrix;
  std::vector<double> right;

  explicit Equations(std::size_t size) : matrix(size, std::vector<double>(size)), right(size) {}

  /// Gaussian elimination; the priors make the matrix positive definite, so no pivots are needed.
  std::vector<double> solution() && {
    const std::size_t size = right.size();
    for (std::size_t k = 0; k < size; ++k)
      for (std::size_t i = k + 1; i < size; ++i) {
        const double factor = matrix[i][k] / matrix[k][k];
        for (std::size_t j = k; j < size; ++j)
          matrix[i][j] -= factor * matrix[k][j];
        right[i] -= factor * right[k];
      }
    for (std::size_t k = size; k-- > 0;) {
      for (std::size_t j = k + 1; j < size; ++j)
        right[k] -= matrix[k][j] * right[j];
      right[k] /= matrix[k][k];
    }
    return std::move(right);
  }
};

/// `loss` as squares of errors, linear in the logarithms of the constants.
Equations equations_at(Constants& constants, const Rows& rows) {
  constexpr double little = 0.01;
  const std::size_t size = parameters.size();
  Equations out(size);
  std::vector<double> slopes(size);
  std::vector<Constants> moved(size, constants);
  for (std::size_t i = 0; i < size; ++i)
    value_of(moved[i], parameters[i]) *= std::exp(little);
  for (const Row* row : rows) {
    const double now = predicted(constants, *row), error = std::log(now / row->seconds);
    const double weight = row->weight * square_weight(error);
    for (std::size_t i = 0; i < size; ++i) {
      slopes[i] = std::log(predicted(moved[i], *row) / now) / little;
      out.right[i] += weight * slopes[i] * error;
      for (std::size_t j = 0; j <= i; ++j)
        out.matrix[i][j] += weight * slopes[i] * slopes[j];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    const Parameter& one = parameters[i];
    const double inverse = 1 / (one.deviation * one.deviation);
    out.right[i] += inverse * std::log(value_of(constants, one) / one.prior);
    out.matrix[i][i] += inverse;
    for (std::size_t j = 0; j < i; ++j)
      out.matrix[j][i] = out.matrix[i][j];
  }
  return out;
}

/// Steps of Gauss and Newton, each halved until the loss falls; deterministic.
Constants fit(Constants constants, const Rows& rows) {
  double best = loss(constants, rows);
  for (int sweep = 0; sweep < 40; ++sweep) {
    const std::vector<double> step = equations_at(constants, rows).solution();
    const double before = best;
    for (double share = 1; share > 0.02 && best == before; share /= 2) {
      Constants next = constants;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        double& value = value_of(next, parameters[i]);
        value = std::clamp(value * std::exp(-share * std::clamp(step[i], -0.7, 0.7)), parameters[i].least,
                           parameters[i].most);
      }
      if (const double now = loss(next, rows); now < best) {
        best = now;
        constants = next;
      }
    }
    if (before - best < 1e-4)
      break;
  }
  return constants;
}

/// Errors of predicted over measured time, of all rows and by source and chip.
template <class Predict>
void report(const char* title, const std::vector<Row>& rows, const Predict& predict) {
  std::vector<double> all;
  std::map<std::string, std::vector<double>> groups;
  for (const Row& row : rows)
    if (row.timed) {
      const double error = predict(row) / row.seconds - 1;
      all.push_back(error);
      groups["source " + row.source].push_back(error);
      groups["chip " + std::string(row.run.cluster.chip.name)].push_back(error);
      groups[row.run.model.experts.used() ? "models with experts" : "models without experts"].push_back(
          error);
      groups[row.run.program.empty() ? "programs of other authors" : "named programs"].push_back(error);
    }
  const ErrorSummary whole = summary_of(all);
  std::printf("%s: %zu rows, median error %.1f%%, P90 %.1f%%\n", title, whole.rows, 100 * whole.median,
              100 * whole.ninetieth);
  for (const auto& [name, errors] : groups) {
    const ErrorSummary part = summary_of(errors);
    std::printf("  %-72.72s %4zu rows, bias %+6.1f%%, median %5.1f%%, P90 %5.1f%%\n", name.c_str(), part.rows,
                100 * part.bias, 100 * part.median, 100 * part.ninetieth);
  }
}

/// A measured time over its prediction from other sources.
struct Ratio {
  const Row* row = nullptr;
  double value = 0;
};

/// Runs that share an interval: those of named programs, without and with experts, and all others.
enum class Kind : std::size_t { dense, experts, unknown };
constexpr std::array<const char*, 3> kind_names{"dense", "experts", "unknown"};

Kind kind_of(const Row& row) {
  return row.run.program.empty() ? Kind::unknown : row.run.model.experts.used() ? Kind::experts : Kind::dense;
}

/// A quantile of the ratios of one kind of runs, over all sources but one.
///
/// A run of another source may be off as much as the runs of any one source are, so a source with many rows
/// counts more than one with few, but not in proportion. There are few of them: the quantile is interpolated
/// between the ratios, each of which stands for the middle of its weight.
double quantile_over_sources(const std::vector<Ratio>& ratios, Kind kind, const std::string& without,
                             double share) {
  std::map<std::string, double> rows;
  std::vector<const Ratio*> sorted;
  for (const Ratio& ratio : ratios)
    if (kind_of(*ratio.row) == kind && ratio.row->source != without) {
      ++rows[ratio.row->source];
      sorted.push_back(&ratio);
    }
  std::sort(sorted.begin(), sorted.end(),
            [](const Ratio* left, const Ratio* right) { return left->value < right->value; });
  double all = 0, before = 0, last_middle = 0, last = 1;
  for (const auto& [source, count] : rows)
    all += std::sqrt(count);
  for (const Ratio* ratio : sorted) {
    const double weight = 1 / (std::sqrt(rows[ratio->row->source]) * all);
    const double middle = before + weight / 2;
    if (middle >= share) {
      if (before == 0)
        return ratio->value;
      return last + (ratio->value - last) * (share - last_middle) / (middle - last_middle);
    }
    before += weight;
    last_middle = middle;
    last = ratio->value;
  }
  return last;
}

/// The standard deviation of the ratios' logarithms about the mean of their source, of runs with or without
/// experts.
double deviation_within_sources(const std::vector<Ratio>& ratios, bool experts) {
  struct Sums {
    double count = 0, values = 0, squares = 0;
  };
  std::map<std::string, Sums> sources;
  for (const Ratio& ratio : ratios)
    if (ratio.row->run.model.experts.used() == experts) {
      const double value = std::log(ratio.value);
      Sums& source = sources[ratio.row->source];
      ++source.count;
      source.values += value;
      source.squares += value * value;
    }
  double squares = 0, degrees = 0;
  for (const auto& [name, source] : sources) {
    squares += source.squares - source.values * source.values / source.count;
    degrees += source.count - 1;
  }
  return std::sqrt(squares / degrees);
}

/// The constants without the rows of each source or program in turn.
std::map<std::string, Constants> fits_without(const Constants& fitted, const std::vector<Row>& rows,
                                              std::string (*key)(const Row&)) {
  std::map<std::string, Constants> without;
  for (const Row& row : rows)
    if (row.timed && !without.contains(key(row))) {
      Rows others;
      for (const Row& other : rows)
        if (key(other) != key(row))
          others.push_back(&other);
      without[key(row)] = fit(fitted, others);
    }
  return without;
}

std::string source_of(const Row& row) { return row.source; }
std::string program_of(const Row& row) {
  return row.run.program.empty() ? row.source : std::string(row.run.program);
}

int run(std::span<const char* const> paths) {
  const auto end = std::find(paths.begin(), paths.end(), std::string_view("--not-fitted"));
  const std::vector<Row> rows = read_rows({paths.begin(), end});
  const std::vector<Row> blind = read_rows({end == paths.end() ? end : end + 1, paths.end()});
  Rows all;
  for (const Row& row : rows)
    all.push_back(&row);
  const Constants fitted = fit(priors(), all);
  const auto without = fits_without(fitted, rows, source_of);
  const auto unseen = [&](const Row& row) { return predicted(without.at(row.source), row); };
  const auto other_programs = fits_without(fitted, rows, program_of);
  std::vector<Ratio> ratios;
  for (const Row& row : rows)
    if (row.timed) {
      ratios.push_back({&row, row.seconds / unseen(row)});
      std::printf("row %-52s measured %9.3f s, predicted %9.3f s, %+6.1f%%\n", row.id.c_str(), row.seconds,
                  unseen(row), 100 * (unseen(row) / row.seconds - 1));
    }
  report("fitted to all rows", rows, [&](const Row& row) { return predicted(fitted, row); });
  report("each source predicted by the others", rows, unseen);
  report("each program predicted by the others", rows,
         [&](const Row& row) { return predicted(other_programs.at(program_of(row)), row); });
  report("not fitted", blind, [&](const Row& row) { return predicted(fitted, row); });
  for (const Row& row : blind)
    ratios.push_back({&row, row.seconds / predicted(fitted, row)});
  std::array<std::size_t, kind_names.size()> inside{}, counted{};
  for (const Ratio& ratio : ratios) {
    const Kind kind = kind_of(*ratio.row);
    const auto at = static_cast<std::size_t>(kind);
    const double least = quantile_over_sources(ratios, kind, ratio.row->source, interval_outside);
    const double most = quantile_over_sources(ratios, kind, ratio.row->source, 1 - interval_outside);
    inside[at] += ratio.value >= least && ratio.value <= most ? 1 : 0;
    ++counted[at];
  }
  for (std::size_t i = 0; i < kind_names.size(); ++i)
    std::printf("intervals from other sources hold %zu of %zu runs (%s)\n", inside[i], counted[i],
                kind_names[i]);
  Constants result = fitted;
  for (const Parameter& parameter : parameters)
    std::printf("set %s %.3g\n", parameter.name, value_of(result, parameter));
  for (std::size_t i = 0; i < kind_names.size(); ++i)
    std::printf("set interval.%s %.3g, %.3g\n", kind_names[i],
                quantile_over_sources(ratios, static_cast<Kind>(i), {}, interval_outside),
                quantile_over_sources(ratios, static_cast<Kind>(i), {}, 1 - interval_outside));
  for (const bool experts : {false, true})
    std::printf("set %s_within %.3g\n", experts ? "experts" : "dense",
                deviation_within_sources(ratios, experts));
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s RUNS.csv... [--not-fitted RUNS.csv...]\n", argv[0]);
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}
