// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Step time and peak memory of a pipeline under each way to balance experts.
///
/// The exact loss of the global batch needs all forwards first, or a counting pass; losses of sequences,
/// counts of the last step and a bias run under plain 1F1B. All train in one process, taking turns step by
/// step, so that other load on the machine affects all of them; times are medians. Use no more ranks than
/// there are idle cores.

#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/models.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/train/pipeline/model.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using sw::axis::dp;
using StageMesh = sw::DeviceMesh<dp>;
using Tokens = sw::Layout<3, sw::Shard<0, dp>>; // [sequences, positions, width]
using Stream = sw::Var<Tokens, float>;
using Plan = sw::ModelPlan<float>;

struct Options {
  int ranks = 2;
  int microbatches = 8;
  int turns = 15;
  int layers = 4;
  std::int64_t width = 128;
  std::int64_t hidden = 256;
  std::int64_t positions = 256; // of the one sequence of a microbatch
  std::int64_t experts = 8;
  std::int64_t chosen = 2;
  std::string json;
};

enum class Balance { global, sequence, microbatch, previous, bias };

struct Config {
  std::int64_t layers = 0;
  Options sizes;
  Balance balance = Balance::global;
};
struct Batch {
  sw::ShardedTensor<Tokens> x, target;
};

/// x + experts(norm(x)), balanced in one of the ways.
class Layer {
public:
  Layer(const auto& place, const Config& config)
      : config_(config), norm_(place.mesh, config.sizes.width, 1e-5),
        router_(place.mesh, config.sizes.width, config.sizes.experts, choice(),
                sw::Initial::normal(0.1).keyed(4 * place.number),
                {.rate = config.balance == Balance::bias ? 0.001 : 0}),
        experts_(place.mesh,
                 {config.sizes.width,
                  config.sizes.hidden,
                  {config.sizes.experts, config.sizes.positions * config.sizes.chosen}},
                 sw::Initial::normal(0.05), sw::Initial::normal(0.05)) {
    if (config.balance == Balance::global)
      over_batch_.emplace(place.mesh, config.sizes.experts, losses_);
  }

  Stream operator()(Stream x) {
    const Stream normed = norm_(x);
    auto routed = router_(normed);
    if (config_.balance != Balance::bias)
      balance(routed.logits);
    return x + experts_(normed, routed.experts, std::move(routed.gates));
  }
  auto members() {
    return sw::members("norm", norm_, "router", router_, "experts", experts_, "balance", over_batch_);
  }

private:
  [[nodiscard]] sw::RouterOptions choice() const {
    return {.chosen = config_.sizes.chosen, .scores = sw::RouterScores::sigmoid};
  }
  template <class Logits> void balance(const Logits& logits) {
    const auto counted = sw::choose_experts(logits.value(), {.chosen = config_.sizes.chosen});
    switch (config_.balance) {
    case Balance::global:
      return (*over_batch_)(logits, counted);
    case Balance::sequence:
      return void(sw::balance_loss<sw::EachSequence>(logits, counted, losses_));
    case Balance::microbatch:
      return void(sw::balance_loss<sw::WholeMicrobatch>(logits, counted, losses_));
    default:
      return void(sw::stale_balance_loss(logits, counted, router_.load().last_step(), losses_));
    }
  }

  static constexpr sw::BalanceOptions losses_{0.01, sw::RouterScores::sigmoid};
  Config config_;
  sw::RmsNorm<Tokens, Plan> norm_;
  sw::Router<Tokens, Plan> router_;
  sw::ExpertMlp<Tokens, sw::AxisList<dp>, sw::AxisList<>, Plan> experts_;
  std::optional<sw::GlobalBalance<Tokens>> over_batch_;
};

struct First {
  First(const auto&, const Config&) {}
  static constexpr std::string_view name = "first";
  static constexpr bool gradient_reads_weights = false;
  auto operator()(sw::Tape<>& tape, const Batch& batch) { return tape.input(batch.x); }
  auto members() { return sw::members(); }
};
struct Last {
  Last(const auto&, const Config&) {}
  static constexpr std::string_view name = "last";
  auto operator()(Stream x, const Batch& batch) { return sw::mse(std::move(x), batch.target); }
  auto members() { return sw::members(); }
};
struct Model {
  using Config = ::Config;
  using Batch = ::Batch;
  using target = sw::DefaultTarget;
  using element = float;
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;
  static std::array<std::int64_t, 3> boundary(const Config&, const Batch& batch) { return batch.x.shape(); }
};

/// One of the ways on one rank: a model in training.
class Way {
public:
  Way(sw::HostCommunicator world, const Options& options, Balance balance, const sw::Schedule& schedule)
      : mesh_(world.split(world.rank(), 0), sw::extent<dp>(1)),
        model_(mesh_, world, schedule.placement(), sw::LayerPartition(options.layers, options.ranks),
               {options.layers, options, balance}, 5),
        training_(mesh_, model_, world, world, schedule) {
    for (int i = 0; i < options.microbatches; ++i) {
      const std::array<std::int64_t, 3> shape{1, options.positions, options.width};
      batches_.push_back({{mesh_, shape}, {mesh_, shape}});
      sw::fill_normal(batches_.back().x, {7, static_cast<std::uint64_t>(2 * i)});
      sw::fill_normal(batches_.back().target, {7, static_cast<std::uint64_t>(2 * i + 1)});
    }
  }
  void step() {
    static_cast<void>(training_.step([&](std::int64_t) { return std::span<const Batch>(batches_); }, 1e-3));
  }
  [[nodiscard]] std::size_t peak_bytes() const {
    return mesh_.core().template resources<sw::DefaultTarget>().statistics().peak_bytes;
  }

private:
  StageMesh mesh_;
  std::vector<Batch> batches_;
  sw::PipelineModel<Model> model_;
  sw::Training<sw::PipelineModel<Model>> training_;
};

struct Line {
  std::string name;
  double makespan = 0; // in forwards of a rank
  std::vector<double> seconds{};
  std::vector<double> megabytes{}; // of each rank
};

std::vector<Line> measure(const Options& options) {
  const int m = options.microbatches;
  const auto all_first = sw::make_schedule<sw::GPipe>(options.ranks, m);
  const auto usual = sw::make_schedule<sw::OneFOneB>(options.ranks, m);
  const double makespan = sw::prove(usual, {}).makespan, counted = makespan + m + options.ranks - 1;
  std::vector<Line> lines{{"global, all forwards first", sw::prove(all_first, {}).makespan},
                          {"global, 1F1B, counting pass", counted},
                          {"sequence, 1F1B", makespan},
                          {"microbatch, 1F1B", makespan},
                          {"previous, 1F1B", makespan},
                          {"bias, 1F1B", makespan}};
  sw::launch({.ranks = options.ranks}, [&](sw::HostCommunicator world) {
    std::vector<std::unique_ptr<Way>> ways;
    const auto add = [&](Balance balance, const sw::Schedule& schedule) {
      ways.push_back(std::make_unique<Way>(world, options, balance, schedule));
    };
    add(Balance::global, all_first);
    add(Balance::global, sw::CountingFirst(usual));
    for (const Balance balance : {Balance::sequence, Balance::microbatch, Balance::previous, Balance::bias})
      add(balance, usual);
    for (int turn = -2; turn < options.turns; ++turn) // the first two warm up
      for (std::size_t i = 0; i < ways.size(); ++i) {
        world.barrier();
        const Clock::time_point begin = Clock::now();
        ways[i]->step();
        world.barrier();
        if (world.rank() == 0 && turn >= 0)
          lines[i].seconds.push_back(seconds_since(begin));
      }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double own = static_cast<double>(ways[i]->peak_bytes()) / (1 << 20);
      const auto all = sw::all_gather_v(world, std::vector<double>{own});
      for (std::size_t rank = 0; rank < all.size() && world.rank() == 0; ++rank)
        lines[i].megabytes.push_back(all[rank].front());
    }
  });
  return lines;
}

void print(const Options& options, const std::vector<Line>& lines) {
  std::printf("%d ranks, %d microbatches of %lld tokens, %d layers of %lld experts; medians of %d turns\n\n",
              options.ranks, options.microbatches, static_cast<long long>(options.positions), options.layers,
              static_cast<long long>(options.experts), options.turns);
  std::printf("%-30s %9s %9s %9s %9s  %s\n", "way", "makespan", "of bias", "step, ms", "of bias",
              "peak of each rank, MiB");
  const Line& last = lines.back();
  for (const Line& line : lines) {
    std::printf("%-30s %9.0f %9.2f %9.1f %9.2f ", line.name.c_str(), line.makespan,
                line.makespan / last.makespan, 1e3 * median(line.seconds),
                median(line.seconds) / median(last.seconds));
    for (const double each : line.megabytes)
      std::printf(" %.1f", each);
    std::printf("\n");
  }
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Step time and memory of the ways to balance experts in a pipeline.", "balance"};
  app.add_option("--ranks", options.ranks, "Thread ranks of the pipeline.")->check(CLI::Range(1, 64));
  app.add_option("--microbatches", options.microbatches, "Microbatches of a step.")
      ->check(CLI::Range(1, 1024));
  app.add_option("--turns", options.turns, "Steps to take the median of.")->check(CLI::Range(1, 1001));
  app.add_option("--layers", options.layers, "Number of layers.")->check(CLI::Range(1, 1024));
  app.add_option("--width", options.width, "Width of a token.")->check(CLI::Range(8, 8192));
  app.add_option("--hidden", options.hidden, "Hidden width of an expert.")->check(CLI::Range(8, 8192));
  app.add_option("--positions", options.positions, "Tokens of a microbatch.")->check(CLI::Range(1, 1 << 16));
  app.add_option("--json", options.json, "File for the figures.");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos;
  try {
    const std::vector<Line> lines = measure(options);
    print(options, lines);
    nlohmann::json table = nlohmann::json::array();
    for (const Line& line : lines)
      table.push_back({{"way", line.name},
                       {"makespan", line.makespan},
                       {"seconds", median(line.seconds)},
                       {"peak_megabytes", line.megabytes}});
    if (!options.json.empty())
      std::ofstream(options.json)
          << nlohmann::json{{"benchmark", "balance"}, {"ranks", options.ranks}, {"ways", table}}.dump(2);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "balance: %s\n", error.what());
    return 1;
  }
}
