// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures the idle time of every pipeline schedule next to the proven one, the microbatches that it
/// keeps, and the time of proofs.
///
/// The stages only take a known time, so any time beyond the proof is due to the runner. A rank has the same
/// work under every schedule: a stage of a schedule with two stages per rank takes half as long. If there are
/// more ranks than cores, stages sleep; otherwise they sleep, but spin for the last millisecond. Figures are
/// medians over turns.

#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/pipeline/measured_timetable.hpp>
#include <shardwright/train/pipeline/runner.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using sw::axis::dp;
using StageMesh = sw::DeviceMesh<dp>;

/// A stage that takes a given time for each pass, and passes on one number.
struct TimedStage {
  using Input = sw::ShardedTensor<sw::Layout<1>>;
  using Output = Input;
  struct Batch {};
  struct Saved {};
  struct Loss {
    Loss& operator+=(const Loss&) { return *this; }
  };

  StageMesh mesh;
  sw::PassCosts seconds;
  bool spins = false;
  bool first = false;
  bool last = false;

  [[nodiscard]] Input make_input(const Batch&) const { return {mesh, {1}}; }
  [[nodiscard]] std::optional<Output> forward(std::optional<Input>, const Batch&, Saved&, Loss&) {
    take(seconds.forward);
    return handed(!last);
  }
  [[nodiscard]] std::optional<Input> input_gradient(std::optional<Output>, Saved&) {
    take(seconds.input_gradient);
    return handed(!first);
  }
  void weight_gradient(const Batch&, Saved&, sw::PassPosition) { take(seconds.weight_gradient); }
  [[nodiscard]] std::optional<Input> backward(std::optional<Output>, const Batch&, Saved&, sw::PassPosition) {
    take(seconds.input_gradient + seconds.weight_gradient);
    return handed(!first);
  }

private:
  void take(double time) const {
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time));
    if (!spins) {
      std::this_thread::sleep_until(end);
      return;
    }
    std::this_thread::sleep_until(end - std::chrono::milliseconds(1));
    while (Clock::now() < end) {
    }
  }
  [[nodiscard]] std::optional<Output> handed(bool any) const {
    return any ? std::optional<Output>(std::in_place, mesh, Output::Shape{1}) : std::nullopt;
  }
};

static_assert(sw::PipelineStage<TimedStage>);

struct Options {
  int ranks = 4;
  int microbatches = 8;
  int turns = 3;
  double milliseconds = 20; // of the forward of a rank
  int proof_ranks = 4096;
  int proof_microbatches = 8192;
  std::string json;
};

/// Times in units of a rank's forward; peaks in microbatches of a whole rank.
struct Line {
  std::string name;
  double proven_makespan = 0;
  double measured_makespan = 0;
  double proven_bubble = 0;
  double measured_bubble = 0;
  double peak = 0;
  int measured_peak = 0;
  int proven_peak = 0;

  /// The larger of the differences in makespan and bubble, as a share of the proven makespan.
  [[nodiscard]] double off() const {
    return std::max(std::abs(measured_makespan - proven_makespan),
                    std::abs(measured_bubble - proven_bubble)) /
           proven_makespan;
  }
};

/// One run on every rank; the timelines, and the most that any rank kept.
std::pair<std::vector<sw::RankTimeline>, int>
run_once(sw::HostCommunicator world, const sw::Schedule& schedule, const sw::PassCosts& seconds) {
  const StageMesh mesh(world.split(world.rank(), 0), sw::extent<dp>(1));
  const sw::StagePlacement& placement = schedule.placement();
  const bool spins = static_cast<unsigned>(world.size()) <= std::thread::hardware_concurrency();
  std::deque<TimedStage> stages;
  std::vector<TimedStage*> chunks;
  for (int chunk = 0; chunk < placement.chunks; ++chunk) {
    const int stage = placement.stage_of(world.rank(), chunk);
    stages.push_back({mesh, seconds, spins, stage == 0, stage + 1 == schedule.stages()});
    chunks.push_back(&stages.back());
  }
  sw::PipelineRunner<TimedStage> runner(world, schedule, chunks, {.record = true});
  const std::vector<TimedStage::Batch> batches(static_cast<std::size_t>(schedule.microbatches()));
  static_cast<void>(runner.run(batches));
  int most = 0;
  for (const auto& peak : sw::all_gather_v(world, std::vector<int>{runner.peak_in_flight()}))
    most = std::max(most, peak.front());
  return {sw::gather_timelines(world, runner.timeline()), most};
}

Line measure(const Options& options, const sw::Schedule& schedule, const sw::PassCosts& ratio) {
  const double unit = options.milliseconds * 1e-3;
  const double share = static_cast<double>(schedule.ranks()) /
                       schedule.stages(); // the share of a rank's work that is in one stage
  const sw::PassCosts costs{ratio.forward * share, ratio.input_gradient * share,
                            ratio.weight_gradient * share, 0, 0};
  const sw::PassCosts seconds{costs.forward * unit, costs.input_gradient * unit, costs.weight_gradient * unit,
                              0, 0};
  const sw::Proof proof = sw::prove(schedule, costs);
  Line line{sw::schedule_title(schedule.name()),
            proof.makespan,
            0,
            proof.bubble,
            0,
            proof.peak_in_flight * share,
            0,
            proof.peak_in_flight};
  std::vector<double> makespans;
  std::vector<double> bubbles;
  for (int turn = 0; turn < options.turns; ++turn)
    sw::launch({.ranks = schedule.ranks()}, [&](sw::HostCommunicator world) {
      const auto [timelines, peak] = run_once(world, schedule, seconds);
      if (world.rank() != 0)
        return;
      const sw::Timetable table =
          sw::measured_timetable(timelines, schedule.placement(), schedule.microbatches(), unit);
      makespans.push_back(table.makespan());
      bubbles.push_back(table.bubble());
      line.measured_peak = std::max(line.measured_peak, peak);
    });
  line.measured_makespan = median(makespans);
  line.measured_bubble = median(bubbles);
  return line;
}

/// Every published schedule that allows these numbers of ranks and microbatches.
std::vector<sw::Schedule> schedules_for(int ranks, int microbatches) {
  std::vector<sw::Schedule> out;
  for (const std::string& name : sw::schedule_names()) {
    try {
      out.push_back(sw::make_schedule(name, ranks, microbatches));
    } catch (const sw::InvalidArgument& error) {
      std::printf("left out: %s\n", error.what());
    }
  }
  return out;
}

nlohmann::json measure_all(const Options& options, const sw::PassCosts& ratio) {
  std::printf("\nF : I : W = %s : %s : %s, %d ranks, %d microbatches; times in forwards of a rank (%s ms)\n",
              sw::number_text(ratio.forward, 2).c_str(), sw::number_text(ratio.input_gradient, 2).c_str(),
              sw::number_text(ratio.weight_gradient, 2).c_str(), options.ranks, options.microbatches,
              sw::number_text(options.milliseconds, 3).c_str());
  std::printf("%-18s %18s %18s %8s %14s %14s\n", "schedule", "makespan", "bubble", "off", "peak", "peak");
  std::printf("%-18s %9s %8s %9s %8s %8s %14s %14s\n", "", "proven", "measured", "proven", "measured", "",
              "proven = run", "of whole ranks");
  nlohmann::json lines = nlohmann::json::array();
  for (const sw::Schedule& schedule : schedules_for(options.ranks, options.microbatches)) {
    const Line line = measure(options, schedule, ratio);
    std::printf("%-18s %9.2f %8.2f %9.2f %8.2f %7.1f%% %10d %s %d %14.1f\n", line.name.c_str(),
                line.proven_makespan, line.measured_makespan, line.proven_bubble, line.measured_bubble,
                100 * line.off(), line.proven_peak, line.proven_peak == line.measured_peak ? "=" : "!",
                line.measured_peak, line.peak);
    std::fflush(stdout);
    lines.push_back({{"schedule", line.name},
                     {"proven_makespan", line.proven_makespan},
                     {"measured_makespan", line.measured_makespan},
                     {"proven_bubble", line.proven_bubble},
                     {"measured_bubble", line.measured_bubble},
                     {"off", line.off()},
                     {"proven_peak", line.proven_peak},
                     {"measured_peak", line.measured_peak},
                     {"peak_of_whole_ranks", line.peak}});
  }
  return {{"forward", ratio.forward},
          {"input_gradient", ratio.input_gradient},
          {"weight_gradient", ratio.weight_gradient},
          {"lines", lines}};
}

template <class Policy> void time_proof(const Options& options, nlohmann::json& out) {
  const int microbatches = options.proof_microbatches;
  const Clock::time_point begin = Clock::now();
  const sw::Proof proof = sw::PipelineSchedule<Policy>::prove(options.proof_ranks, microbatches);
  const double seconds = seconds_since(begin);
  const std::string name = sw::schedule_title(Policy::name);
  std::printf("proof of %-10s %d ranks, %d microbatches: %6.2f s, %s, bubble %s of %s\n", name.c_str(),
              options.proof_ranks, microbatches, seconds, proof.holds() ? "holds" : "does not hold",
              sw::number_text(proof.bubble, 3).c_str(), sw::number_text(proof.makespan, 3).c_str());
  out.push_back({{"schedule", name}, {"seconds", seconds}, {"holds", proof.holds()}});
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Compares the measured idle time of pipeline schedules with the proven one.", "pipeline"};
  app.add_option("--ranks", options.ranks, "Thread ranks.")->check(CLI::Range(1, 64));
  app.add_option("--microbatches", options.microbatches, "Microbatches of a step.")
      ->check(CLI::Range(1, 1024));
  app.add_option("--turns", options.turns, "Runs to take the median of.")->check(CLI::Range(1, 101));
  app.add_option("--milliseconds", options.milliseconds, "Time of a rank's forward pass.")
      ->check(CLI::Range(1.0, 1000.0));
  app.add_option("--proof-ranks", options.proof_ranks, "Ranks of the timed proofs; 0 for none.")
      ->check(CLI::Range(0, 1 << 16));
  app.add_option("--proof-microbatches", options.proof_microbatches, "Microbatches of the timed proofs.")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--json", options.json, "File for the figures.");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos;
  try {
    nlohmann::json tables{measure_all(options, {1, 1, 1, 0, 0}), measure_all(options, {1, 1.25, 0.75, 0, 0})};
    nlohmann::json proofs = nlohmann::json::array();
    std::printf("\n");
    if (options.proof_ranks > 0) {
      time_proof<sw::OneFOneB>(options, proofs);
      time_proof<sw::ZBH1>(options, proofs);
      time_proof<sw::ZBV>(options, proofs);
      if (sw::schedule_rule<sw::DualPipeV>(options.proof_ranks, options.proof_microbatches).holds())
        time_proof<sw::DualPipeV>(options, proofs);
    }
    if (!options.json.empty())
      std::ofstream(options.json) << nlohmann::json{
          {"benchmark", "pipeline"},
          {"ranks", options.ranks},
          {"microbatches", options.microbatches},
          {"milliseconds", options.milliseconds},
          {"tables", tables},
          {"proofs", proofs}}.dump(2);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline: %s\n", error.what());
    return 1;
  }
}
