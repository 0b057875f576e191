// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief How long the planner takes for one configuration, and for a search.
///
/// Usage: planner [--rounds N] [--json FILE]. Each round evaluates every model of the catalogue on 2048 chips
/// with the configurations of a small grid; the figure is the median over rounds. Then it plans Kimi K2, a
/// trillion parameters, on some 16,384 of every chip (racks of 72 and pods whole), one sequence to each: the
/// least time of three.

#include <shardwright/plan/catalogue_chips.hpp>
#include <shardwright/plan/catalogue_models.hpp>
#include <shardwright/plan/catalogue_names.hpp>
#include <shardwright/plan/evaluate.hpp>
#include <shardwright/plan/plan_text.hpp>
#include <shardwright/plan/search.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sw = shardwright;

struct Round {
  int evaluations = 0;
  double seconds_of_steps = 0; ///< Their sum, so that nothing is left out as unused.
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

/// As many chips as a run of this size has: whole scale-up domains, or one that is a pod.
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
    const auto begin = std::chrono::steady_clock::now();
    search.plan = sw::search(*sw::find_model("kimi-k2"), search.cluster, run);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    search.milliseconds = round == 0 ? took.count() : std::min(search.milliseconds, took.count());
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
    const auto begin = std::chrono::steady_clock::now();
    const Round done = evaluate_grid(cluster);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    nanoseconds.push_back(took.count() / done.evaluations);
    sum += done.seconds_of_steps;
  }
  std::nth_element(nanoseconds.begin(), nanoseconds.begin() + rounds / 2, nanoseconds.end());
  const double median = nanoseconds[static_cast<std::size_t>(rounds / 2)];
  std::printf("one evaluation: %.0f ns (median of %d rounds; steps sum to %.3g s)\n", median, rounds, sum);
  std::string searches;
  for (const sw::ChipSpec& chip : sw::chip_catalogue) {
    const Search search = time_search(chip);
    std::printf("search on %lld %s: %.1f ms, %s\n", static_cast<long long>(search.cluster.chips()),
                std::string(search.chip).c_str(), search.milliseconds,
                search.plan.found() ? sw::plan_text(search.plan.configuration).c_str() : "no plan");
    searches += (searches.empty() ? "" : ", ") + ("\"" + std::string(search.chip)) +
                "\": " + std::to_string(search.milliseconds);
  }
  if (json.empty())
    return 0;
  std::ofstream out(json);
  out << "{\"benchmark\": \"planner\", \"evaluation_ns\": " << median << ", \"search_ms\": {" << searches
      << "}}\n";
  return out.flush() ? 0 : 1;
}
