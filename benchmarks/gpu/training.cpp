// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures a training step at GPT-2 124M size in bfloat16: by itself, and alternating with PyTorch on
/// the same device.

#include "device.hpp"
#include "kernel_times.hpp"
#include "parts.hpp"

#include "train_step/pytorch.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpu {

namespace {

using Layouts = sw::DecoderLayouts<false>;
using Model = sw::SingleStageModel<sw::Decoder<Layouts, sw::bfloat16, Device>>;

sw::DecoderConfig config_of(const step_kernels::Sizes& sizes) {
  const auto whole = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  sw::DecoderConfig config;
  config.layers = whole(sizes.layers);
  config.width = whole(sizes.width);
  config.heads = whole(sizes.heads);
  config.kv_heads = whole(sizes.kv_heads);
  config.hidden = whole(sizes.hidden);
  config.vocabulary = whole(sizes.vocabulary);
  config.sequence = whole(sizes.sequence);
  config.tied_embedding = true;
  return config;
}

/// One rank that trains on one batch of random tokens.
class Training {
public:
  Training(const sw::HostCommunicator& world, const sw::DecoderConfig& config, std::int64_t batch)
      : mesh_(sw::decoder_mesh(world, {})), model_(mesh_, config, 1),
        training_(mesh_, model_, sw::AdamW(), {.check_inputs = false, .capture = true}),
        ids_(tokens(config, batch, 1)),
        targets_(tokens(config, batch, 2)), batches_{{ids_.share(), targets_.share(), {}}} {}

  /// Enqueues steps, one after the other, and waits for their end; returns the seconds.
  double run(int steps) {
    return seconds_of_calls(mesh_.execution<Device>(), static_cast<std::size_t>(steps), [&] { step(); });
  }

  /// How steps reach the device.
  [[nodiscard]] const std::string& mode() const { return mode_; }

private:
  static constexpr double learning_rate = 1e-4;
  using Ids = Model::Batch::Ids;

  [[nodiscard]] Ids tokens(const sw::DecoderConfig& config, std::int64_t batch, std::uint64_t stream) const {
    std::vector<std::int32_t> drawn(static_cast<std::size_t>(batch * config.sequence));
    for (std::size_t i = 0; i < drawn.size(); ++i)
      drawn[i] = static_cast<std::int32_t>(sw::random_words({7, stream}, i).word[0] %
                                           static_cast<std::uint32_t>(config.vocabulary));
    return Ids(sw::scatter<typename Layouts::Ids, Device>(mesh_, 0, drawn, {batch, config.sequence}));
  }

  /// A complete step: forward, backward, norm, clipping, AdamW.
  void step() {
    const auto batches = [this](std::int64_t) { return std::span<const Model::Batch>(batches_); };
    const std::optional<sw::StepReport> report = training_.step(batches, learning_rate);
    if (report && !report->note.empty())
      mode_ = report->note;
  }

  sw::DecoderMesh mesh_;
  Model model_;
  sw::Training<Model> training_;
  Ids ids_;
  Ids targets_;
  std::vector<Model::Batch> batches_;
  std::string mode_ = "calls of the host";
};

/// As many sequences as fit beside PyTorch, which keeps the logits in bfloat16 and their softmax in float:
/// for a 124M model, both sides together need about 1.8 GiB for each sequence of 1024.
std::int64_t batch_for(const Options& options) {
  if (options.training_batch > 0)
    return static_cast<std::int64_t>(options.training_batch);
  const double per_sequence = 1.8 * (1 << 30);
  std::int64_t batch = 32;
  while (batch > 1 && static_cast<double>(batch) * per_sequence > 0.7 * static_cast<double>(free_bytes()))
    batch /= 2;
  return batch;
}

/// One way to train in PyTorch.
struct Rival {
  const char* name;
  std::vector<std::string> arguments;
  double least; ///< The minimum of its time over ours.
};

/// The kernels of one step; if this build cannot record them, nothing, with the reason as a note.
KernelTimes kernels_of_a_step(Training& training, int steps, Report& report) {
  if (!KernelTrace::available()) {
    report.note("kernels of a step", "not known: built without CUPTI");
    return {};
  }
  try {
    KernelTrace::begin();
    static_cast<void>(training.run(steps));
    KernelTimes times = KernelTrace::end();
    for (auto& [name, seconds] : times)
      seconds /= steps;
    return times;
  } catch (const std::exception& error) {
    report.note("kernels of a step", error.what());
    return {};
  }
}

void report_kernels(const KernelTimes& ours, Report& report) {
  std::map<std::string_view, double> kinds;
  for (const auto& [name, seconds] : ours)
    kinds[kind_of_kernel(name)] += seconds;
  for (const auto& [kind, seconds] : kinds) {
    std::printf("  %-22s %10.3f ms\n", std::string(kind).c_str(), 1e3 * seconds);
    report.add({"step", std::string(kind), 1e3 * seconds, "ms"});
  }
  // By the names that a profiler takes.
  std::vector<std::pair<double, std::string>> slowest;
  for (const auto& [name, seconds] : ours)
    if (kind_of_kernel(name) != "matrix products")
      slowest.emplace_back(-seconds, name);
  std::sort(slowest.begin(), slowest.end());
  slowest.resize(std::min<std::size_t>(slowest.size(), 3));
  for (const auto& [seconds, name] : slowest)
    report.add({"slowest kernels", name, -1e3 * seconds, "ms"});
}

void print_causes(const KernelTimes& ours, train_step::PyTorchPeer& peer, int steps, double our_step,
                  double their_step, Report& report) {
  std::printf(
      "  where the time of a step goes, in ms; what costs most over PyTorch first\n  %-22s %10s %10s %10s\n",
      "", "ours", "PyTorch", "over");
  for (const KindTimes& row : compare(ours, our_step, peer.profile(steps), their_step)) {
    std::printf("  %-22s %10.3f %10.3f %+10.3f\n", std::string(row.kind).c_str(), 1e3 * row.ours,
                1e3 * row.theirs, 1e3 * (row.ours - row.theirs));
    report.add({"training", "over compiled PyTorch: " + std::string(row.kind), 1e3 * (row.ours - row.theirs),
                "ms of a step"});
  }
}

/// The sides take turns. If `kernels`, those of one of our steps, are given, they are compared too. If a
/// rival does not start, that is noted, and is not an error.
void race(Training& training, const Rival& rival, const std::vector<std::string>& common,
          const Options& options, const KernelTimes& kernels, Report& report) {
  std::vector<std::string> arguments = common;
  arguments.insert(arguments.end(), rival.arguments.begin(), rival.arguments.end());
  try {
    const char* const carried =
        std::getenv("SHARDWRIGHT_SOURCE_DIR"); // the folder to which the program was copied
    train_step::PyTorchPeer peer(options.python,
                                 std::string(carried != nullptr ? carried : SHARDWRIGHT_SOURCE_DIR) +
                                     "/benchmarks/pytorch_peer.py",
                                 arguments);
    std::vector<double> ours, theirs, ratios;
    for (int turn = 0; turn < options.turns; ++turn) {
      ours.push_back(training.run(options.steps) / options.steps);
      theirs.push_back(peer.steps(options.steps) / options.steps);
      ratios.push_back(theirs.back() / ours.back());
    }
    std::printf("%-34s %10.2f ms, ours %10.2f ms: %.2f x   (%s)\n", rival.name, 1e3 * median(theirs),
                1e3 * median(ours), median(ratios), peer.description().c_str());
    report.add(
        {"training", std::string("time of ") + rival.name + " over ours", median(ratios), "x", rival.least});
    if (!kernels.empty())
      print_causes(kernels, peer, options.steps, median(ours), median(theirs), report);
  } catch (const std::exception& error) {
    std::printf("%-34s not measured: %s\n", rival.name, error.what());
    report.note(rival.name, error.what());
  }
  std::fflush(stdout);
}

} // namespace

void measure_training(const Options& options, const Rates& rates, Report& report) {
  const sw::DecoderConfig config = config_of(options.model);
  const std::int64_t batch = batch_for(options);
  const double tokens = static_cast<double>(batch * config.sequence);
  report.note(
      "training",
      std::to_string(config.parameters()) + " parameters, batch " + std::to_string(batch) + " x " +
          std::to_string(config.sequence) +
          " tokens; parameters, activations and their gradients in bfloat16, masters, sums of gradients and optimizer state in float. "
          "Model operations per token are 6 for each element of a matrix and, for causal attention, 6 x layers x width x sequence: half of what PaLM's convention (Chowdhery et al. 2022, appendix B) counts for attention");
  sw::kernels::use_timed_products(true); // of one rank
  sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
    Training training(world, config, batch);
    static_cast<void>(training.run(4)); // memory, plans of products, capture
    std::vector<double> times;
    for (int turn = 0; turn < options.turns; ++turn)
      times.push_back(training.run(options.steps) / options.steps);
    const double seconds = median(times);
    const double utilisation = 100 * config.flops_per_token() * tokens / seconds / rates.bfloat;
    std::printf("training, %.1f million parameters, batch %lld x %lld, steps by %s\n",
                1e-6 * static_cast<double>(config.parameters()), static_cast<long long>(batch),
                static_cast<long long>(config.sequence), training.mode().c_str());
    std::printf("%.2f ms, %.0f tokens/s, %.1f%% of the matrix rate\n", 1e3 * seconds, tokens / seconds,
                utilisation);
    report.note("steps", training.mode());
    report.add({"training", "a step", 1e3 * seconds, "ms"});
    report.add({"training", "tokens", tokens / seconds, "tokens/s"});
    report.add({"training", "model operations", utilisation, "% of the matrix rate", 45});
    // If a rival runs out of time, the earlier measurements are already saved.
    const auto save = [&] {
      if (!options.json.empty())
        report.write(options.json);
    };
    const KernelTimes kernels = kernels_of_a_step(training, options.steps, report);
    report_kernels(kernels, report);
    save();
    if (options.python.empty())
      return;
    const auto text = [](auto value) { return std::to_string(value); };
    std::vector<std::string> common{"--layers",
                                    text(config.layers),
                                    "--d-model",
                                    text(config.width),
                                    "--heads",
                                    text(config.heads),
                                    "--kv-heads",
                                    text(config.kv_heads),
                                    "--hidden",
                                    text(config.hidden),
                                    "--sequence",
                                    text(config.sequence),
                                    "--batch",
                                    text(batch),
                                    "--vocabulary",
                                    text(config.vocabulary),
                                    "--tied",
                                    "--device",
                                    Device::host_accessible ? "cpu" : "cuda"};
    const std::array rivals{Rival{"PyTorch, eager", {"--precision", "bf16"}, 1.0},
                            Rival{"PyTorch, eager, autocast", {"--precision", "autocast"}, 0},
                            Rival{"PyTorch, compiled", {"--precision", "bf16", "--compile"}, 1.0}};
    for (const Rival& rival : rivals) {
      const bool compiled = &rival == &rivals.back();
      if (options.compiled || !compiled)
        race(training, rival, common, options, compiled ? kernels : KernelTimes{}, report);
      save();
    }
  });
  std::printf("\n");
}

} // namespace gpu
