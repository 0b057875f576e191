// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a run with its repetition on one rank.

#include "verify.hpp"

#include <shardwright/core/hash.hpp>
#include <shardwright/io/hash_record.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

namespace {

/// The largest difference of a quantity, absolute and relative.
struct Difference {
  double absolute = 0;
  double relative = 0;
  std::size_t at = 0;

  void take(double value, double reference, std::size_t index) {
    if (value == reference) // also the infinite norms of a step that fp16 skips
      return;
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

/// How far a run is from its repetition.
struct Distance {
  Difference loss, norm, validation;
};

/// The same up to the end of each step, and after validation.
std::vector<Distance> distances(const RunResult& run, const RunResult& one) {
  std::vector<Distance> out;
  Distance so_far;
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    so_far.loss.take(run.steps[step].loss, one.steps.at(step).loss, step + 1);
    so_far.norm.take(run.steps[step].gradient_norm, one.steps.at(step).gradient_norm, step + 1);
    out.push_back(so_far);
  }
  so_far.validation.take(run.validation_loss, one.validation_loss, run.steps.size());
  out.push_back(so_far);
  return out;
}

/// A difference that is too large, and what is allowed there.
struct Excess {
  const char* quantity;
  Difference difference;
  double allowed;
};

/// The first one, given what roundings come to; null for nothing. In 16 bits, gradient norms are not judged.
std::optional<Excess> excess(const std::vector<Distance>& run, const std::vector<Distance>& roundings,
                             double tolerance, bool narrow) {
  constexpr double spread = 8; // of what two sets of roundings come to
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto allowed = [&](Difference Distance::*quantity) {
      return tolerance + (roundings.empty() ? 0 : spread * (roundings[i].*quantity).relative);
    };
    for (const auto& [name, quantity] : {std::pair{"training losses", &Distance::loss},
                                         {"gradient norms", &Distance::norm},
                                         {"validation losses", &Distance::validation}})
      if (!(narrow && quantity == &Distance::norm) && !((run[i].*quantity).relative <= allowed(quantity)))
        return Excess{name, run[i].*quantity, allowed(quantity)};
  }
  return std::nullopt;
}

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

double nearby_rate(Precision precision) { return 1 + (precision == Precision::fp64 ? 0x1p-51 : 0x1p-22); }

void repeat_steps(RunOptions& options, const RunResult& run, double rate_factor) {
  options.rate_steps = options.steps;
  options.steps = static_cast<std::int64_t>(run.steps.size());
  options.patience = 0;
  options.learning_rate *= rate_factor;
}

int report_bits(std::ostream& out, const RunResult& run, const RunResult& one) {
  if (run.hashes.empty() && one.hashes.empty()) {
    out << "verify: no step was run, so nothing is compared" << std::endl;
    return 0;
  }
  const shardwright::HashComparison found = shardwright::compare_hashes(run.hashes, one.hashes);
  if (found.difference) {
    out << "verify: FAILED: the runs must have the same bits, but they differ in " << found.difference->text()
        << std::endl;
    return 1;
  }
  if (!found.unmatched.empty()) {
    out << "verify: FAILED: the runs must have the same steps, gradients and weights, but: " << found.text()
        << std::endl;
    return 1;
  }
  // The order of names depends on which rank holds which stages, so the terms are added.
  std::uint64_t all = 0;
  for (const auto& [step, values] : run.hashes)
    for (const shardwright::HashedValue& value : values)
      if (!of_microbatch(value))
        all += shardwright::detail::mixed(
            shardwright::detail::Fnv1a().add(value.name).add(static_cast<std::uint64_t>(step)).value(),
            value.hash);
  const bool validated = run.validation_loss == one.validation_loss;
  char line[200];
  std::snprintf(
      line, sizeof line,
      "verify: %s: the same bits in %zu steps, losses, gradients, norms and weights: hash %016llx\n",
      validated ? "passed" : "FAILED: other validation losses after", found.steps,
      static_cast<unsigned long long>(all));
  out << line << "  " << found.text() << std::endl;
  return validated ? 0 : 1;
}

int report_differences(std::ostream& out, const RunOptions& options, const std::string& reference,
                       double tolerance, const RunResult& run, const RunResult& one,
                       const std::function<RunResult()>& nearby) {
  const std::vector<Distance> all = distances(run, one);
  std::vector<Distance> roundings;
  std::optional<Excess> found = excess(all, roundings, tolerance, is_narrow(options.precision));
  if (found) {
    roundings = distances(nearby(), one);
    found = excess(all, roundings, tolerance, is_narrow(options.precision));
  }

  const auto& [loss, norm, validation] = all.back();
  char line[200];
  std::snprintf(line, sizeof line, "verify: %s: losses differ by %.2e relative at most, %.0e is allowed\n",
                found ? "FAILED" : "passed", std::max(loss.relative, validation.relative), tolerance);
  out << line;
  if (!roundings.empty()) {
    std::snprintf(
        line, sizeof line,
        "  and 8 times what roundings come to: %.2e for losses, %.2e for gradient norms in the end\n",
        roundings.back().loss.relative, roundings.back().norm.relative);
    out << line;
  }
  if (found) {
    std::snprintf(line, sizeof line, "  step %zu: %s differ by %.2e, %.2e is allowed\n", found->difference.at,
                  found->quantity, found->difference.relative, found->allowed);
    out << line;
  }
  out << "largest differences of " << options.mesh_text() << reference << ":\n";
  std::snprintf(line, sizeof line, "  %-28s %12s %12s\n", "quantity", "absolute", "relative");
  out << line;
  print(out, "training loss", loss.absolute, loss.relative, "step " + std::to_string(loss.at));
  print(out, "validation loss", validation.absolute, validation.relative, "");
  print(out, "gradient norm", norm.absolute, norm.relative, "step " + std::to_string(norm.at));
  print_parameters(out, run, one);
  out << std::flush;
  return found ? 1 : 0;
}

} // namespace trainer
