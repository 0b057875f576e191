// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs of train_models' models that are distributed in some way, and the difference of two of them.

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <models/options.hpp>
#include <models/training.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace models_test {

namespace sw = shardwright;
using models::Options;
/// A run, with the loads of experts in each step and layer.
struct RunResult : models::RunResult {
  std::vector<std::vector<sw::ExpertLoadReport>> loads;

  [[nodiscard]] std::vector<double> losses() const {
    std::vector<double> out;
    for (const trainer::StepRecord& step : steps)
      out.push_back(step.loss);
    return out;
  }
  [[nodiscard]] std::vector<double> gradient_norms() const {
    std::vector<double> out;
    for (const trainer::StepRecord& step : steps)
      out.push_back(step.gradient_norm);
    return out;
  }
};

/// A way to distribute a training.
struct Way {
  std::vector<command_line::MeshAxis> mesh;
  std::string schedule = "1f1b";
  int microbatches = 1;
  sw::Recompute recompute = sw::Recompute::none;
  int batch = 24;

  [[nodiscard]] std::string text() const {
    std::string out =
        schedule + " " + std::to_string(microbatches) + " " + std::string(sw::name_of(recompute));
    if (batch != 24)
      out += " batch " + std::to_string(batch);
    for (const auto& axis : mesh)
      out += " " + axis.name + "=" + std::to_string(axis.extent);
    return out;
  }
};

[[nodiscard]] inline Options options_of(const std::string& model, const std::string& precision,
                                        const Way& way) {
  Options out;
  out.model = model;
  out.precision = trainer::precision_of(precision);
  out.zero = models::compiled_zero(out.precision);
  out.mesh = way.mesh;
  out.ranks = out.mesh_ranks();
  out.schedule = way.schedule;
  out.accumulation = way.microbatches;
  out.recompute.kind = way.recompute;
  out.batch = way.batch;
  out.steps = 20;
  out.learning_rate = out.least_learning_rate = 0.001;
  return out;
}

/// The result of the first rank; losses are the same on all.
[[nodiscard]] inline RunResult run(const Options& options) {
  std::vector<RunResult> all(static_cast<std::size_t>(options.ranks));
  sw::LaunchOptions launch;
  launch.ranks = options.ranks;
  launch.deadline = std::chrono::minutes(1);
  shardwright_test::launch_thread_ranks(launch, [&](const sw::HostCommunicator& world) {
    RunResult& own = all[static_cast<std::size_t>(world.rank())];
    const auto keep_loads = [&](const auto&, std::span<const sw::ExpertLoadReport> loads, const auto&) {
      own.loads.emplace_back(loads.begin(), loads.end());
    };
    static_cast<models::RunResult&>(own) = models::train(world, options, true, keep_loads);
  });
  for (const RunResult& each : all) {
    CHECK(each.losses() == all.front().losses());
    CHECK(each.gradient_norms() == all.front().gradient_norms());
  }
  return std::move(all.front());
}

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// The larger one; a difference that is not a number is infinite.
[[nodiscard]] inline double larger(double a, double difference) {
  return std::isnan(difference) ? infinite : std::max(a, difference);
}

/// The largest relative difference of two series.
[[nodiscard]] inline double difference(const std::vector<double>& values,
                                       const std::vector<double>& reference) {
  double out = values.size() == reference.size() && !values.empty() ? 0 : infinite;
  for (std::size_t i = 0; i < std::min(values.size(), reference.size()); ++i)
    out = larger(out, std::abs(values[i] / reference[i] - 1));
  return out;
}

/// The largest difference of a parameter, relative to its largest element.
[[nodiscard]] inline double parameter_difference(const RunResult& result, const RunResult& reference) {
  if (result.parameters.size() != reference.parameters.size() || reference.parameters.empty())
    return infinite;
  double out = 0;
  for (std::size_t p = 0; p < reference.parameters.size(); ++p) {
    const auto& left = result.parameters[p];
    const auto& right = reference.parameters[p];
    if (left.name != right.name || left.shape != right.shape || left.values.size() != right.values.size())
      return infinite;
    double largest = 0;
    double off = 0;
    for (std::size_t i = 0; i < right.values.size(); ++i) {
      largest = std::max(largest, std::abs(right.values[i]));
      off = larger(off, std::abs(left.values[i] - right.values[i]));
    }
    out = larger(out, off / largest);
  }
  return out;
}

} // namespace models_test
