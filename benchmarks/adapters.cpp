// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The step of a decoder's adapters beside the step that trains all of its weights.
///
/// Both models are in one process and take turns, so that other load on the machine affects both. The result
/// is the median of the ratios of neighbouring steps.

#include "timing.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using Layouts = sw::DecoderLayouts<false>;
using Full = sw::SingleStageModel<sw::Decoder<Layouts>>;
using WithLora = sw::SingleStageModel<sw::Adapted<sw::Decoder<sw::FrozenLayouts<Layouts>>>>;

struct Settings {
  sw::DecoderConfig model{.layers = 6,
                          .width = 512,
                          .heads = 8,
                          .kv_heads = 8,
                          .hidden = 1408,
                          .vocabulary = 256,
                          .sequence = 256};
  std::int64_t batch = 8;
  std::int64_t rank = 16;
  int tensor = 1;
  int rounds = 15;
};

/// A model in training on random tokens.
template <class Model> class Run {
public:
  template <class Config>
  Run(const sw::DecoderMesh& mesh, const Settings& settings, const Config& config)
      : model_(mesh, config, 1), training_(mesh, model_, sw::AdamW()) {
    using Ids = typename Model::Batch::Ids;
    Ids ids(mesh, {settings.batch, settings.model.sequence}), targets(mesh, ids.shape());
    const auto vocabulary = static_cast<std::uint32_t>(settings.model.vocabulary);
    for (std::size_t i = 0; i < ids.local_size(); ++i) {
      ids.mutable_data()[i] = static_cast<std::int32_t>(sw::random_words({1, 1}, i).word[0] % vocabulary);
      targets.mutable_data()[i] = static_cast<std::int32_t>(sw::random_words({1, 2}, i).word[0] % vocabulary);
    }
    batches_.push_back({ids.share(), targets.share()});
  }
  /// Seconds of a step on all ranks.
  double step(sw::HostCommunicator& world) {
    world.barrier();
    const Clock::time_point begin = Clock::now();
    static_cast<void>(
        training_.step([&](std::int64_t) { return std::span<const typename Model::Batch>(batches_); }, 1e-4));
    world.barrier();
    return seconds_since(begin);
  }

private:
  Model model_;
  decltype(sw::Training(std::declval<const sw::DecoderMesh&>(), std::declval<Model&>(),
                        sw::AdamW())) training_;
  std::vector<typename Model::Batch> batches_;
};

struct Line {
  double full = 0, adapters = 0, ratio = 0;
};

Line measure(const sw::HostCommunicator& group, const Settings& settings) {
  const sw::DecoderMesh mesh = sw::decoder_mesh(group, {.tp = settings.tensor});
  sw::HostCommunicator world = mesh.world();
  Run<Full> full(mesh, settings, settings.model);
  Run<WithLora> adapters(mesh, settings,
                         WithLora::Config{settings.model, {.rank = settings.rank, .alpha = 32}});
  std::vector<double> of_full, of_adapters, ratios;
  for (int round = -2; round < settings.rounds; ++round) { // two that warm up
    const double first = full.step(world), second = adapters.step(world);
    if (round < 0)
      continue;
    of_full.push_back(first);
    of_adapters.push_back(second);
    ratios.push_back(second / first);
  }
  return {median(of_full), median(of_adapters), median(ratios)};
}

} // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string json;
  CLI::App app("Compares a step of adapters with one of all weights.");
  app.add_option("--layers", settings.model.layers)->capture_default_str();
  app.add_option("--d-model", settings.model.width)->capture_default_str();
  app.add_option("--heads", settings.model.heads)->capture_default_str();
  app.add_option("--kv-heads", settings.model.kv_heads)->capture_default_str();
  app.add_option("--hidden", settings.model.hidden)->capture_default_str();
  app.add_option("--vocabulary", settings.model.vocabulary)->capture_default_str();
  app.add_option("--sequence", settings.model.sequence)->capture_default_str();
  app.add_option("--batch", settings.batch, "sequences of a step")->capture_default_str();
  app.add_option("--rank", settings.rank, "of the adapters of all linear layers")->capture_default_str();
  app.add_option("--tp", settings.tensor, "tensor ranks")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "pairs of measurements")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "also write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    sw::kernels::use_single_threaded_blas();
    const Kokkos::ScopeGuard kokkos;
    Line line;
    sw::launch({.ranks = settings.tensor}, [&](sw::HostCommunicator world) {
      const Line own = measure(world, settings);
      if (world.rank() == 0)
        line = own;
    });
    std::printf("step of all weights %.1f ms, of adapters %.1f ms, ratio %.3f\n", 1e3 * line.full,
                1e3 * line.adapters, line.ratio);
    if (!json.empty())
      std::ofstream(json) << nlohmann::json{{"full_seconds", line.full},
                                            {"adapter_seconds", line.adapters},
                                            {"adapters_over_full", line.ratio}}
                                 .dump(2)
                          << "\n";
  } catch (const std::exception& error) {
    std::cerr << "adapters: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
