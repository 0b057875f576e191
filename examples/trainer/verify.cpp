// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a run with its repetition on one rank.

#include "verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

namespace trainer {

namespace {

/// The largest difference of a quantity, absolute and relative to the reference's largest magnitude so far
/// compared.
struct Difference {
  double absolute = 0;
  double relative = 0;
  std::size_t at = 0;

  void take(double value, double reference, std::size_t index) {
    const double difference = std::abs(value - reference);
    const double share = difference / std::max(std::abs(reference), 1e-300);
    // A NaN on either side must not pass as equal.
    if (!(difference <= absolute))
      absolute = difference;
    if (!(share <= relative)) {
      relative = share;
      at = index;
    }
  }
};

void print(std::ostream& out, const std::string& name, double absolute, double relative,
           const std::string& where) {
  char line[192];
  std::snprintf(line, sizeof line, "  %-28s %12.3e %12.3e  %s\n", name.c_str(), absolute, relative,
                where.c_str());
  out << line;
}

/// The parameters that differ most, each relative to its largest element; the others differ less.
void print_parameters(std::ostream& out, const RunResult& run, const RunResult& one) {
  struct Row {
    const std::string* name;
    double absolute, relative;
  };
  std::vector<Row> rows;
  for (std::size_t p = 0; p < run.parameters.size(); ++p) {
    const auto& mine = run.parameters[p].values;
    const auto& theirs = one.parameters[p].values;
    double absolute = 0;
    double largest = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double difference = std::abs(mine[i] - theirs[i]);
      if (!(difference <= absolute))
        absolute = difference;
      largest = std::max(largest, std::abs(theirs[i]));
    }
    rows.push_back({&run.parameters[p].name, absolute, absolute / std::max(largest, 1e-300)});
  }
  // A NaN differs most.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::isnan(a.relative) ? !std::isnan(b.relative) : a.relative > b.relative;
  });
  constexpr std::size_t shown = 3;
  for (std::size_t i = 0; i < std::min(shown, rows.size()); ++i)
    print(out, *rows[i].name, rows[i].absolute, rows[i].relative, "of the largest element");
  if (rows.size() > shown)
    out << "  and less in " << rows.size() - shown << " other parameters\n";
}

} // namespace

// Sums in another order differ by a few roundings of the arithmetic. 16-bit activations are rounded wherever
// the partial sums of tensor ranks meet: each by half a unit in the last place, which the mean over a batch
// of tokens brings below one.
double tolerance_of(Precision precision) {
  switch (precision) {
  case Precision::fp64:
    return 1e-8;
  case Precision::bf16:
    return 0x1p-8;
  case Precision::fp16:
    return 0x1p-11;
  case Precision::fp32:
    break;
  }
  return 1e-4;
}

int report_differences(std::ostream& out, const RunOptions& options, const std::string& reference,
                       double tolerance, const RunResult& run, const RunResult& one) {
  Difference loss;
  Difference norm;
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    loss.take(run.steps[step].loss, one.steps[step].loss, step + 1);
    norm.take(run.steps[step].gradient_norm, one.steps[step].gradient_norm, step + 1);
  }
  Difference validation;
  validation.take(run.validation_loss, one.validation_loss, 0);

  const bool agree = loss.relative <= tolerance && validation.relative <= tolerance;
  char line[160];
  std::snprintf(line, sizeof line, "verify: %s: losses differ by %.2e relative at most, %.0e is allowed\n",
                agree ? "passed" : "FAILED", std::max(loss.relative, validation.relative), tolerance);
  out << line << "largest differences of " << options.mesh_text() << reference << ":\n";
  std::snprintf(line, sizeof line, "  %-28s %12s %12s\n", "quantity", "absolute", "relative");
  out << line;
  print(out, "training loss", loss.absolute, loss.relative, "step " + std::to_string(loss.at));
  print(out, "validation loss", validation.absolute, validation.relative, "");
  print(out, "gradient norm", norm.absolute, norm.relative, "step " + std::to_string(norm.at));
  print_parameters(out, run, one);
  out << std::flush;
  return agree ? 0 : 1;
}

} // namespace trainer
