// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures how long the planner takes for one configuration and for a search, and the simulator for
/// one step.
///
/// Usage: planner [--rounds N] [--json FILE]. Each round evaluates every model of the catalogue on 2048 chips
/// with the configurations of a small grid; the figure is the median over rounds. Then it plans Kimi K2, a
/// trillion parameters, on about 16,384 of each chip (whole racks of 72, whole pods), with one sequence per
/// chip: the least time of three. Steps of Llama 3.1 405B in pipelines of 16 with 64 microbatches are
/// simulated five times on each number of chips: the median, and the peak of the process's memory.

#include "timing.hpp"

#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/simulate/simulate_step.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/plan/spec/catalogue_models.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;

struct Round {
  int evaluations = 0;
  double seconds_of_steps = 0; ///< Their sum, so that the compiler removes nothing as unused.
};

Round evaluate_grid(const sw::ClusterSpec& cluster) {
  Round round;
  for (const sw::ModelSpec& model : sw::model_catalogue)
    for (const int tp : {1, 2, 4, 8})
      for (const int pp : {1, 4, 16})
        for (const int zero : {1, 3})
          for (const int microbatch : {1, 2}) {
            const sw::PlanConfiguration plan{.tp = tp,
                                             .pp = pp,
                                             .ep = model.experts.used() ? 8 : 1,
                                             .dp = 2048 / (tp * pp),
                                             .zero_stage = zero,
                                             .microbatch = microbatch};
            round.seconds_of_steps +=
                sw::evaluate(model, cluster, {.sequences = 8192, .sequence_length = 4096}, plan).step_seconds;
            ++round.evaluations;
          }
  return round;
}

/// A cluster to simulate, with the options.
struct SimulatedCase {
  const char* name;
  std::int64_t chips;
  sw::SimulationOptions options;
};

/// Median seconds of five simulations of a case.
double simulate(const SimulatedCase& one) {
  const int replicas = static_cast<int>(one.chips / 128);
  const sw::PlanConfiguration plan{
      .tp = 8, .pp = 16, .dp = replicas, .zero_stage = 1, .recomputation = sw::Recompute::selective};
  const sw::ClusterSpec cluster = sw::cluster_of(sw::chip::h100, one.chips);
  const sw::RunSpec run{.sequences = 64 * replicas, .sequence_length = 8192};
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) {
    const Clock::time_point begin = Clock::now();
    const sw::StepSimulation step =
        sw::simulate_step(*sw::find_model("llama-3.1-405b"), cluster, run, plan, one.options);
    const double took = seconds_since(begin);
    seconds.push_back(step.step_seconds > 0 ? took : 0);
  }
  return median(seconds);
}

/// Prints the times of all cases; as JSON members, each after a comma.
std::string simulate_all() {
  sw::SimulationOptions jitter, slow, egress;
  jitter.jitter = 0.01;
  slow.stragglers = {{777, 1.3, 1}};
  egress = slow;
  egress.oversubscription = 2;
  std::string json;
  for (const std::int64_t chips : {1024, 16384, 131072})
    for (const SimulatedCase& one :
         {SimulatedCase{"alike", chips, {}}, SimulatedCase{"straggler", chips, slow},
          SimulatedCase{"straggler_egress", chips, egress}, SimulatedCase{"jitter", chips, jitter}}) {
      const double seconds = simulate(one);
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      std::printf("one step of %lld chips, %s: %.2f ms (process so far at most %.0f MB)\n",
                  static_cast<long long>(chips), one.name, 1e3 * seconds,
                  static_cast<double>(used.ru_maxrss) / 1024);
      json += ", \"simulation_ms_" + std::string(one.name) + "_" + std::to_string(chips) +
              "\": " + std::to_string(1e3 * seconds);
    }
  return json;
}

/// As many chips as a run of this size would have: whole scale-up domains, or a whole pod.
sw::ClusterSpec large_cluster(const sw::ChipSpec& chip) {
  const std::int64_t domain = chip.scale_up_chips;
  const std::int64_t domains = domain > 8192 ? 1 : domain == 72 ? 224 : 16384 / domain;
  return sw::cluster_of(chip, domains * domain);
}

struct Search {
  std::string_view chip{};
  sw::ClusterSpec cluster{};
  sw::Plan plan{};
  double milliseconds = 0;
};

Search time_search(const sw::ChipSpec& chip) {
  Search search{chip.name, large_cluster(chip), {}, 0};
  const sw::RunSpec run{.sequences = search.cluster.chips(), .sequence_length = 4096};
  for (int round = 0; round < 3; ++round) {
    const Clock::time_point begin = Clock::now();
    search.plan = sw::search(*sw::find_model("kimi-k2"), search.cluster, run);
    const double milliseconds = 1e3 * seconds_since(begin);
    search.milliseconds = round == 0 ? milliseconds : std::min(search.milliseconds, milliseconds);
  }
  return search;
}

} // namespace

int main(int argc, char** argv) {
  int rounds = 200;
  std::string json;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--rounds" && name != "--json")) {
      std::fprintf(stderr, "usage: planner [--rounds N] [--json FILE]\n");
      return 2;
    }
    if (name == "--json")
      json = argv[i + 1];
    else
      rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  const sw::ClusterSpec cluster = sw::cluster_of(sw::chip::h100, 2048);
  std::vector<double> nanoseconds;
  double sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    const Round done = evaluate_grid(cluster);
    nanoseconds.push_back(1e9 * seconds_since(begin) / done.evaluations);
    sum += done.seconds_of_steps;
  }
  const double evaluation_nanoseconds = median(nanoseconds);
  std::printf("one evaluation: %.0f ns (median of %d rounds; steps sum to %.3g s)\n", evaluation_nanoseconds,
              rounds, sum);
  std::string searches;
  for (const sw::ChipSpec& chip : sw::chip_catalogue) {
    const Search search = time_search(chip);
    std::printf("search on %lld %s: %.1f ms, %s\n", static_cast<long long>(search.cluster.chips()),
                std::string(search.chip).c_str(), search.milliseconds,
                search.plan.found() ? sw::plan_text(search.plan.configuration).c_str() : "no plan");
    searches += (searches.empty() ? "" : ", ") + ("\"" + std::string(search.chip)) +
                "\": " + std::to_string(search.milliseconds);
  }
  const std::string simulated = simulate_all();
  if (json.empty())
    return 0;
  std::ofstream out(json);
  out << "{\"benchmark\": \"planner\", \"evaluation_ns\": " << evaluation_nanoseconds << ", \"search_ms\": {"
      << searches << "}" << simulated << "}\n";
  return out.flush() ? 0 : 1;
}
