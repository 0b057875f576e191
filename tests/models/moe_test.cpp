// SPDX-License-Identifier: Apache-2.0
#include "models/spread_run.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

// Decoders with experts, 20 steps each: losses, parameters, biases and the load of every expert in every step
// are those of one rank, which has all experts.

namespace {

namespace sw = shardwright;
using models_test::difference;
using models_test::options_of;
using models_test::parameter_difference;
using models_test::run;
using models_test::RunResult;
using models_test::Way;

struct Case {
  std::string model;
  Way way;
};

/// A few of everything.
const std::vector<Case> selection{
    {"moe", {.mesh = {{"dp", 2}, {"ep", 2}, {"tp", 2}, {"pp", 2}}, .microbatches = 2}},
    {"moe", {.mesh = {{"ep", 4}}, .microbatches = 2, .recompute = sw::Recompute::full}},
    {"moe", {.mesh = {{"pp", 2}, {"ep", 2}}, .schedule = "dualpipe", .microbatches = 4}}, // copies of a stage
    {"moe", {.mesh = {{"dp", 2}, {"ep", 2}, {"cp", 2}}, .batch = 3}},    // a rank without tokens
    {"moe-folded", {.mesh = {{"dp", 2}, {"tp", 2}}, .microbatches = 4}}, // uneven
    {"mixtral", {.mesh = {{"ep", 2}, {"cp", 2}, {"tp", 2}}, .microbatches = 2}},
    {"mixtral-folded", {.mesh = {{"dpr", 2}, {"ep", 2}, {"tp", 2}}}},
};

/// Chosen by hand: extents of ep from 1 to 8, the number of experts; etp 2; experts over ep, dp and tp.
std::vector<Case> all_cases() {
  std::vector<Case> out = selection;
  const std::vector<Way> ways{
      {.mesh = {{"dp", 2}}},
      {.mesh = {{"tp", 2}}},
      {.mesh = {{"cp", 2}}},
      {.mesh = {{"ep", 2}}},
      {.mesh = {{"ep", 4}}},
      {.mesh = {{"ep", 8}}},
      {.mesh = {{"ep", 3}}}, // 3, 3 and 2 experts
      {.mesh = {{"dp", 2}, {"ep", 2}}},
      {.mesh = {{"dp", 3}, {"ep", 2}}},
      {.mesh = {{"dp", 2}, {"ep", 4}}},
      {.mesh = {{"dpr", 2}, {"dp", 2}, {"ep", 2}}},
      {.mesh = {{"ep", 2}, {"tp", 2}}},
      {.mesh = {{"ep", 4}, {"tp", 2}}, .microbatches = 2},
      {.mesh = {{"ep", 2}, {"tp", 4}}},
      {.mesh = {{"ep", 2}, {"cp", 2}}},
      {.mesh = {{"ep", 4}, {"cp", 2}}, .microbatches = 3},
      {.mesh = {{"dp", 2}, {"ep", 2}, {"cp", 2}, {"tp", 2}}},
      {.mesh = {{"dp", 2}, {"ep", 2}, {"tp", 2}}, .microbatches = 2, .recompute = sw::Recompute::full},
      {.mesh = {{"dp", 2}, {"ep", 4}}, .batch = 5},                    // ranks without tokens
      {.mesh = {{"ep", 4}, {"tp", 2}}, .microbatches = 3, .batch = 9}, // in each microbatch
      {.mesh = {{"pp", 2}}, .microbatches = 4},
      {.mesh = {{"pp", 2}, {"ep", 2}}, .schedule = "interleaved", .microbatches = 4},
      {.mesh = {{"pp", 2}, {"ep", 2}}, .schedule = "zbv", .microbatches = 4},
      {.mesh = {{"pp", 2}, {"ep", 4}}, .schedule = "gpipe", .microbatches = 3},
      {.mesh = {{"pp", 2}, {"ep", 2}, {"tp", 2}}, .schedule = "dualpipe", .microbatches = 4},
      {.mesh = {{"pp", 2}, {"dp", 2}, {"ep", 2}},
       .schedule = "zbv",
       .microbatches = 4,
       .recompute = sw::Recompute::full},
      {.mesh = {{"pp", 2}, {"ep", 2}, {"cp", 2}, {"tp", 2}}, .microbatches = 2},
  };
  for (const char* model : {"moe", "mixtral", "moe-folded", "mixtral-folded"})
    for (const Way& way : ways)
      out.push_back({model, way});
  return out;
}

using Loads = std::vector<std::vector<std::vector<std::int64_t>>>; // step, layer, expert
Loads loads_of(const RunResult& result) {
  Loads out;
  for (const auto& step : result.loads) {
    out.emplace_back();
    for (const auto& layer : step)
      out.back().push_back(layer.chosen);
  }
  return out;
}

/// The balance and z-losses of each step.
std::vector<double> router_losses(const RunResult& result) {
  std::vector<double> out;
  for (const auto& step : result.loads) {
    const sw::ExpertSummary summary = sw::summary_of(step);
    out.push_back(summary.balance_loss + summary.z_loss);
  }
  return out;
}

/// The run of one rank, computed once for each batch: all in one microbatch if the balance is that of
/// sequences.
const RunResult& on_one_rank(const std::string& model, const std::string& precision, const Way& way) {
  static std::map<std::tuple<std::string, std::string, int, int>, RunResult> known;
  const std::string style = model.substr(0, model.find('-'));
  const int microbatches = style == "mixtral" ? way.microbatches : 1;
  const auto [at, made] = known.try_emplace({style, precision, microbatches, way.batch});
  if (made)
    at->second =
        run(options_of(style, precision, {.mesh = {}, .microbatches = microbatches, .batch = way.batch}));
  return at->second;
}

void compare(const Case& each, const std::string& precision) {
  INFO(each.model << " " << precision << " " << each.way.text());
  const RunResult& one = on_one_rank(each.model, precision, each.way);
  const RunResult spread = run(options_of(each.model, precision, each.way));
  CHECK(loads_of(spread) == loads_of(one)); // so that no choice differs
  if (precision == "fp32") {
    CHECK(difference(spread.losses(), one.losses()) < 1e-5);
    return;
  }
  CHECK(difference(spread.losses(), one.losses()) < 1e-10);
  CHECK(difference(router_losses(spread), router_losses(one)) < 1e-9);
  CHECK(difference(spread.gradient_norms(), one.gradient_norms()) < 1e-9);
  CHECK(parameter_difference(spread, one) < 1e-9);
}

} // namespace

TEST_CASE("decoders with experts train as on one rank, for all owners of experts and all meshes") {
  for (const Case& each : selection)
    compare(each, "fp64");
  compare(selection.front(), "fp32");
}

TEST_CASE("what the comparison rests on: experts are loaded unevenly, biases move, and losses fall") {
  const RunResult one = on_one_rank("moe", "fp64", {.mesh = {}, .microbatches = 2});
  CHECK(one.steps.back().loss < 0.85 * one.steps.front().loss);
  REQUIRE(one.loads.size() == 20);
  REQUIRE(one.loads.back().size() == 3); // the first layer is dense
  for (const auto& layer : one.loads.back()) {
    CHECK(layer.chosen.size() == 8);
    CHECK(*std::min_element(layer.chosen.begin(), layer.chosen.end()) <
          *std::max_element(layer.chosen.begin(), layer.chosen.end()));
  }
  std::vector<std::string> biases;
  for (const trainer::NamedTensor& each : one.parameters)
    if (each.name.find(".router.load") != std::string::npos)
      biases.push_back(each.name);
  CHECK(biases == std::vector<std::string>{"layers.1.mlp.router.load.bias", "layers.2.mlp.router.load.bias",
                                           "layers.3.mlp.router.load.bias"});
  const sw::ExpertSummary summary = sw::summary_of(one.loads.back());
  // A balanced layer has its coefficient, and of the three none is balanced; only the other model has a
  // z-loss.
  CHECK(summary.balance_loss > 3 * 0.001);
  CHECK(summary.balance_loss < 3 * 0.001 * 8);
  CHECK(summary.z_loss == 0);
  const RunResult& mixtral = on_one_rank("mixtral", "fp64", {.mesh = {}, .microbatches = 1});
  CHECK(sw::summary_of(mixtral.loads.back()).z_loss > 0);
  CHECK(summary.least_bias < -0.015);
  CHECK(summary.largest_bias > 0.015);
  // A float rounds 1e9 times as coarsely as a double, but still changes no choice: margins are large.
  CHECK(loads_of(on_one_rank("moe", "fp32", {.mesh = {}, .microbatches = 2})) == loads_of(one));
}

TEST_CASE("every mesh of decoders with experts", "[.][every_mesh]") {
  for (const char* precision : {"fp64", "fp32"})
    for (const Case& each : all_cases())
      compare(each, precision);
}
