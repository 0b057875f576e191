// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures how much of the gradient reductions and weight gathers a step hides behind its
/// computation, and how its time depends on the size of the buckets.
///
/// Data ranks train a decoder, on their own links or on simulated ones (--gigabytes-per-second). Every line
/// is the median step; communication is the mean over the ranks: the time in which data moved, and of that
/// the part in which a rank waited for it.

#include "timing.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;

struct Settings {
  sw::DecoderConfig model{.layers = 6,
                          .width = 256,
                          .heads = 4,
                          .kv_heads = 4,
                          .hidden = 768,
                          .vocabulary = 256,
                          .sequence = 128};
  int ranks = 2;
  int replicas = 1; ///< Of the shard group, out of the ranks.
  std::int64_t batch = 8;
  int steps = 7;
  double gigabytes_per_second = 0;
  double latency_microseconds = 0;
  std::vector<std::size_t> bucket_kib{0, 256, 1024, 4096, 16384, 65536};
  std::string json;
};

struct Line {
  std::string zero;
  std::size_t bucket_kib = 0;
  double step_seconds = 0;
  sw::CommunicationTotals reductions{}, gathers{}; ///< Of one step.
};

double hidden_percent(const sw::CommunicationTotals& totals) {
  return totals.seconds > 0 ? 100 * totals.hidden_seconds() / totals.seconds : 100;
}

template <class Zero>
Line measure(const sw::HostCommunicator& world, const Settings& settings, const char* name,
             std::size_t bucket_kib) {
  const auto clock = std::make_shared<sw::CommunicationClock>();
  sw::HostCommunicator linked = world;
  if (settings.gigabytes_per_second > 0)
    linked = sw::simulated_link(linked, {.latency_seconds = settings.latency_microseconds * 1e-6,
                                         .bytes_per_second = settings.gigabytes_per_second * 1e9});
  const sw::DecoderMesh mesh = sw::decoder_mesh(
      sw::timed(linked, clock), {.dpr = settings.replicas, .dp = world.size() / settings.replicas});
  using Model = sw::SingleStageModel<sw::Decoder<sw::DecoderLayouts<false, Zero>>>;
  Model model(mesh, settings.model, 1);
  sw::GradAccumulator accumulator(model);
  accumulator.set_bucket_bytes(bucket_kib << 10);
  sw::AdamW optimizer;
  typename Model::Batch::Ids ids(mesh, {settings.batch, settings.model.sequence});
  typename Model::Batch::Ids targets(mesh, {settings.batch, settings.model.sequence});
  for (std::size_t i = 0; i < ids.local_size(); ++i) {
    const auto draw = [&](std::uint64_t stream) {
      return static_cast<std::int32_t>(
          sw::random_words({stream, static_cast<std::uint64_t>(mesh.rank())}, i).word[0] %
          static_cast<std::uint32_t>(settings.model.vocabulary));
    };
    ids.mutable_data()[i] = draw(1);
    targets.mutable_data()[i] = draw(2);
  }
  sw::HostCommunicator ranks = world;
  std::vector<double> seconds;
  for (int step = 0; step <= settings.steps; ++step) {
    ranks.barrier();
    if (step == 1) // the first one warms up
      clock->restart();
    const Clock::time_point begin = Clock::now();
    const auto out = model.forward_backward({ids.share(), targets.share()}, sw::PassPosition::last);
    accumulator.add(out.loss, out.tokens);
    const auto summary = accumulator.finish();
    optimizer.step(model, summary, 1e-4);
    accumulator.restart();
    ranks.barrier();
    if (step > 0)
      seconds.push_back(seconds_since(begin));
  }
  Line line{name, bucket_kib, median(seconds)};
  for (const sw::CommunicationKind& kind : sw::mean_communication(world, *clock)) {
    if (kind.group.ends_with("reductions"))
      line.reductions += kind.totals;
    if (kind.group.ends_with("gathers"))
      line.gathers += kind.totals;
  }
  for (sw::CommunicationTotals* totals : {&line.reductions, &line.gathers})
    for (double* number : {&totals->calls, &totals->bytes, &totals->seconds, &totals->exposed_seconds,
                           &totals->waited_seconds})
      *number /= settings.steps;
  return line;
}

std::vector<Line> measure_all(const sw::HostCommunicator& world, const Settings& settings) {
  std::vector<Line> lines;
  for (const std::size_t kib : settings.bucket_kib) {
    lines.push_back(measure<sw::DataParallel>(world, settings, "none", kib));
    lines.push_back(measure<sw::Zero3>(world, settings, "ZeRO-3", kib));
  }
  return lines;
}

void print(const std::vector<Line>& lines) {
  std::printf("%-8s %10s %9s | %6s %9s %9s %7s | %6s %9s %9s %7s\n", "sharding", "bucket KiB", "step ms",
              "calls", "reduce ms", "waited ms", "hidden", "calls", "gather ms", "waited ms", "hidden");
  for (const Line& line : lines)
    std::printf("%-8s %10zu %9.2f | %6.0f %9.2f %9.2f %6.1f%% | %6.0f %9.2f %9.2f %6.1f%%\n",
                line.zero.c_str(), line.bucket_kib, line.step_seconds * 1e3, line.reductions.calls,
                line.reductions.seconds * 1e3, line.reductions.exposed_seconds * 1e3,
                hidden_percent(line.reductions), line.gathers.calls, line.gathers.seconds * 1e3,
                line.gathers.exposed_seconds * 1e3, hidden_percent(line.gathers));
}

nlohmann::json json_of(const std::vector<Line>& lines) {
  const auto totals = [](const sw::CommunicationTotals& of) {
    return nlohmann::json{{"calls", of.calls},
                          {"bytes", of.bytes},
                          {"seconds", of.seconds},
                          {"exposed_seconds", of.exposed_seconds}};
  };
  nlohmann::json out = nlohmann::json::array();
  for (const Line& line : lines)
    out.push_back({{"sharding", line.zero},
                   {"bucket_kib", line.bucket_kib},
                   {"step_seconds", line.step_seconds},
                   {"reductions", totals(line.reductions)},
                   {"gathers", totals(line.gathers)}});
  return out;
}

} // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{"Time of a step for several bucket sizes, and how much of its communication is hidden.",
               "overlap"};
  app.add_option("--ranks", settings.ranks, "Data ranks, if no launcher sets their number.")
      ->check(CLI::Range(1, 64));
  app.add_option("--replicas", settings.replicas, "Number of replicas of the shard group among the ranks.");
  app.add_option("--layers", settings.model.layers, "Decoder layers.");
  app.add_option("--width", settings.model.width, "Width of the decoder, a multiple of 8.");
  app.add_option("--sequence", settings.model.sequence, "Tokens of a sequence.");
  app.add_option("--batch", settings.batch, "Sequences of a step, over all ranks.");
  app.add_option("--steps", settings.steps, "Steps to take the median of.")->check(CLI::Range(1, 1001));
  app.add_option("--gigabytes-per-second", settings.gigabytes_per_second,
                 "Bandwidth of a simulated link of each rank; 0 for none.");
  app.add_option("--latency", settings.latency_microseconds, "Latency of that link, in microseconds.");
  app.add_option("--buckets", settings.bucket_kib, "Sizes of the buckets in KiB.")->delimiter(',');
  app.add_option("--json", settings.json, "File for the figures.");
  CLI11_PARSE(app, argc, argv);
  settings.model.hidden = 3 * settings.model.width;
  const Kokkos::ScopeGuard kokkos;
  try {
    sw::launch({.ranks = settings.ranks}, [&](sw::HostCommunicator world) {
      const std::vector<Line> lines = measure_all(world, settings);
      if (world.rank() != 0)
        return;
      std::printf("%d ranks, %lld layers of width %lld, %lld x %lld tokens a step", world.size(),
                  static_cast<long long>(settings.model.layers), static_cast<long long>(settings.model.width),
                  static_cast<long long>(settings.batch), static_cast<long long>(settings.model.sequence));
      if (settings.gigabytes_per_second > 0)
        std::printf(", simulated links of %g GB/s and %g us", settings.gigabytes_per_second,
                    settings.latency_microseconds);
      std::printf("\n");
      print(lines);
      if (!settings.json.empty())
        std::ofstream(settings.json) << nlohmann::json{
            {"benchmark", "overlap"},
            {"ranks", world.size()},
            {"replicas", settings.replicas},
            {"layers", settings.model.layers},
            {"width", settings.model.width},
            {"tokens", settings.batch * settings.model.sequence},
            {"gigabytes_per_second", settings.gigabytes_per_second},
            {"latency_microseconds", settings.latency_microseconds},
            {"lines", json_of(lines)}}.dump(2);
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overlap: %s\n", error.what());
    return 1;
  }
}
