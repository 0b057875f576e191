// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a training step with the matrix products of its linear layers, and with the same model in
/// PyTorch.
///
/// The sides alternate in one run: one training step, then the matrix products of its linear layers (12 per
/// layer: each of the four matrices forward, input gradient, weight gradient) with all ranks active; then
/// PyTorch's step, and PyTorch's products of the same sizes. The results are medians of the ratios of
/// neighbouring measurements.

#include "pytorch.hpp"
#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using Layouts = sw::DecoderLayouts<false>;

struct Case {
  int data = 1;
  int tensor = 1;
  [[nodiscard]] std::string name() const {
    return "dp=" + std::to_string(data) + ",tp=" + std::to_string(tensor);
  }
};

struct Settings {
  sw::DecoderConfig model;
  std::int64_t batch = 8;
  int rounds = 9;
  std::string python;
  std::string peer_script;
  std::vector<std::string> peer_arguments;
};

/// Seconds of `work` on all ranks, from the first start to the last end.
template <class Work> double timed(sw::HostCommunicator& world, Work&& work) {
  world.barrier();
  const Clock::time_point begin = Clock::now();
  work();
  world.barrier();
  return seconds_since(begin);
}

/// The linear layers of a decoder on this rank's shards, with separate memory for every layer.
class LinearLayers {
  /// One product of plain matrices with the sizes that one rank has.
  struct Product {
    std::vector<float> x, w, y, x_gradient, w_gradient;
    std::size_t tokens, in, out;
    Product(std::size_t t, std::size_t i, std::size_t o)
        : x(t * i, 0.5f), w(i * o, 0.25f), y(t * o, 0.125f), x_gradient(t * i), w_gradient(i * o), tokens(t),
          in(i), out(o) {}
  };

public:
  LinearLayers(const sw::DecoderConfig& config, std::int64_t tokens, int tensor_ranks) {
    const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
    const std::size_t t = size(tokens);
    const std::size_t d = size(config.width);
    const std::size_t ranks = static_cast<std::size_t>(tensor_ranks);
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      products_.emplace_back(t, d, size((config.heads + 2 * config.kv_heads) * config.head_width()) / ranks);
      products_.emplace_back(t, size(config.heads * config.head_width()) / ranks, d);
      products_.emplace_back(t, d, 2 * size(config.hidden) / ranks);
      products_.emplace_back(t, size(config.hidden) / ranks, d);
    }
  }

  [[nodiscard]] double flops() const {
    double sum = 0;
    for (const Product& p : products_)
      sum += 6.0 * static_cast<double>(p.tokens * p.in * p.out);
    return sum;
  }

  void run() {
    using Const = sw::MatrixView<const float>;
    using Mutable = sw::MatrixView<float>;
    using sw::kernels::Transpose;
    const sw::DefaultTarget::execution_space execution = sw::DefaultTarget::make_execution_space();
    for (Product& p : products_) {
      sw::kernels::matmul(execution, Const(p.x.data(), p.tokens, p.in), Transpose::no,
                          Const(p.w.data(), p.in, p.out), Transpose::no,
                          Mutable(p.y.data(), p.tokens, p.out));
    }
    for (auto p = products_.rbegin(); p != products_.rend(); ++p) {
      sw::kernels::matmul(execution, Const(p->y.data(), p->tokens, p->out), Transpose::no,
                          Const(p->w.data(), p->in, p->out), Transpose::yes,
                          Mutable(p->x_gradient.data(), p->tokens, p->in));
      sw::kernels::matmul(execution, Const(p->x.data(), p->tokens, p->in), Transpose::yes,
                          Const(p->y.data(), p->tokens, p->out), Transpose::no,
                          Mutable(p->w_gradient.data(), p->in, p->out));
    }
  }

private:
  std::vector<Product> products_;
};

/// Floating-point operations per second of fused multiply-adds on registers: the maximum rate of one core.
double fma_peak() {
#if defined(__AVX512F__)
  constexpr int bytes = 64;
#elif defined(__AVX__)
  constexpr int bytes = 32;
#else
  constexpr int bytes = 16;
#endif
  typedef float Lanes __attribute__((vector_size(bytes)));
  Lanes factor = Lanes{} + 0.999f;
  Lanes add = Lanes{} + 0.001f;
  asm volatile("" : "+v"(factor), "+v"(add));
  // Twelve independent chains: more than latency times units, fewer than the registers.
  Lanes a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{};
  double best = 0;
  for (int round = 0; round < 15; ++round) {
    constexpr int steps = 400000;
    const Clock::time_point begin = Clock::now();
    for (int step = 0; step < steps; ++step) {
      a = a * factor + add, b = b * factor + add, c = c * factor + add, d = d * factor + add;
      e = e * factor + add, f = f * factor + add, g = g * factor + add, h = h * factor + add;
      i = i * factor + add, j = j * factor + add, k = k * factor + add, l = l * factor + add;
      asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));
      asm volatile("" : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l));
    }
    best = std::max(best, 2.0 * steps * 12 * (bytes / 4) / seconds_since(begin));
  }
  return best;
}

nlohmann::json measure(const sw::HostCommunicator& group, const Case& wanted, const Settings& settings) {
  const sw::DecoderMesh mesh = sw::decoder_mesh(group, {.dp = wanted.data, .tp = wanted.tensor});
  sw::HostCommunicator world = mesh.world();
  using Model = sw::SingleStageModel<sw::Decoder<Layouts>>;
  Model model(mesh, settings.model, 1);
  sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer;
  typename Model::Batch::Ids ids(mesh, {settings.batch, settings.model.sequence});
  typename Model::Batch::Ids targets(mesh, {settings.batch, settings.model.sequence});
  for (std::size_t i = 0; i < ids.local_size(); ++i) {
    const auto vocabulary = static_cast<std::uint32_t>(settings.model.vocabulary);
    const auto draw = [&](std::uint64_t stream) {
      return static_cast<std::int32_t>(
          sw::random_words({stream, static_cast<std::uint64_t>(mesh.coordinate<dp>())}, i).word[0] %
          vocabulary);
    };
    ids.mutable_data()[i] = draw(1);
    targets.mutable_data()[i] = draw(2);
  }
  const auto step = [&] {
    const auto out = model.forward_backward({ids.share(), targets.share()});
    accumulator.add(out.loss, out.tokens);
    const auto summary = accumulator.finish();
    optimizer.step(model, summary, 1e-4);
    accumulator.restart();
  };
  LinearLayers linear(settings.model, settings.batch / wanted.data * settings.model.sequence, wanted.tensor);
  std::optional<train_step::PyTorchPeer> peer;
  if (world.rank() == 0 && !settings.python.empty()) {
    auto arguments = settings.peer_arguments;
    arguments.insert(arguments.end(), {"--threads", std::to_string(world.size())});
    peer.emplace(settings.python, settings.peer_script, arguments);
  }
  world.barrier();
  std::array<double, 1> peak{fma_peak()};
  world.all_reduce_in_place(peak, sw::ReduceOp::sum);
  for (int warm = 0; warm < 2; ++warm) {
    step();
    linear.run();
  }
  std::vector<double> steps, products, peers, over_products, over_peer, peer_over_products;
  const std::size_t allocations = mesh.pool_statistics().allocations;
  for (int round = 0; round < settings.rounds; ++round) {
    steps.push_back(timed(world, step));
    products.push_back(timed(world, [&] { linear.run(); }));
    over_products.push_back(steps.back() / products.back());
    if (peer) {
      peers.push_back(peer->step());
      over_peer.push_back(peers.back() / steps.back());
      peer_over_products.push_back(peers.back() / peer->products());
    }
    world.barrier();
  }
  const double rate = linear.flops() * world.size() / median(products);
  nlohmann::json out{
      {"mesh", wanted.name()},
      {"step_seconds", median(steps)},
      {"linear_seconds", median(products)},
      {"step_over_linear", median(over_products)},
      {"linear_gflops", rate * 1e-9},
      {"share_of_fma_peak", rate / peak[0]},
      {"tokens_per_second", static_cast<double>(settings.batch * settings.model.sequence) / median(steps)},
      {"pool_allocations_in_rounds", mesh.pool_statistics().allocations - allocations}};
  if (peer) {
    out["pytorch_seconds"] = median(peers);
    out["pytorch_over_step"] = median(over_peer);
    out["pytorch_over_linear"] = median(peer_over_products);
    out["pytorch"] = peer->description();
  }
  return out;
}

void print(const nlohmann::json& row) {
  std::printf("%-10s %9.1f ms %9.1f ms %8.3f %9.1f %7.0f%% %10.0f", row["mesh"].get<std::string>().c_str(),
              row["step_seconds"].get<double>() * 1e3, row["linear_seconds"].get<double>() * 1e3,
              row["step_over_linear"].get<double>(), row["linear_gflops"].get<double>(),
              row["share_of_fma_peak"].get<double>() * 100, row["tokens_per_second"].get<double>());
  if (row.contains("pytorch_over_step"))
    std::printf(" %8.2f %12.3f", row["pytorch_over_step"].get<double>(),
                row["pytorch_over_linear"].get<double>());
  std::printf("\n");
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.model = {.layers = 6,
                    .width = 512,
                    .heads = 8,
                    .kv_heads = 8,
                    .hidden = 1408,
                    .vocabulary = 256,
                    .sequence = 256};
  std::string json;
  bool compile = false;
  std::vector<std::string> meshes{"1", "dp", "tp"};
  CLI::App app("Compares a training step with its linear layers' matrix products, and with PyTorch.");
  app.add_option("--layers", settings.model.layers)->capture_default_str();
  app.add_option("--d-model", settings.model.width)->capture_default_str();
  app.add_option("--heads", settings.model.heads)->capture_default_str();
  app.add_option("--kv-heads", settings.model.kv_heads)->capture_default_str();
  app.add_option("--hidden", settings.model.hidden)->capture_default_str();
  app.add_option("--sequence", settings.model.sequence)->capture_default_str();
  app.add_option("--batch", settings.batch, "sequences of a step, over all ranks")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "pairs of measurements")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--meshes", meshes, "1: one rank, dp: two data ranks, tp: two tensor ranks")
      ->capture_default_str();
  app.add_option("--python", settings.python, "a Python with torch: measure that, too");
  app.add_flag("--compile", compile, "run PyTorch's model through torch.compile");
  app.add_option("--json", json, "also write the table to this file");
  CLI11_PARSE(app, argc, argv);
  const auto text = [](auto value) { return std::to_string(value); };
  settings.peer_script = SHARDWRIGHT_SOURCE_DIR "/benchmarks/pytorch_peer.py";
  settings.peer_arguments = {
      "--layers", text(settings.model.layers), "--d-model",  text(settings.model.width),
      "--heads",  text(settings.model.heads),  "--kv-heads", text(settings.model.kv_heads),
      "--hidden", text(settings.model.hidden), "--sequence", text(settings.model.sequence),
      "--batch",  text(settings.batch)};
  if (compile)
    settings.peer_arguments.push_back("--compile");
  try {
    sw::kernels::use_single_threaded_blas();
    const Kokkos::ScopeGuard kokkos;
    nlohmann::json rows = nlohmann::json::array();
    std::printf("%-10s %12s %12s %8s %9s %8s %10s%s\n", "mesh", "step", "linear", "ratio", "GFLOP/s",
                "of peak", "tokens/s", settings.python.empty() ? "" : "  vs torch  torch ratio");
    for (const std::string& mesh : meshes) {
      const Case wanted{mesh == "dp" ? 2 : 1, mesh == "tp" ? 2 : 1};
      nlohmann::json row;
      sw::launch({.ranks = wanted.data * wanted.tensor}, [&](sw::HostCommunicator world) {
        const nlohmann::json out = measure(world, wanted, settings);
        if (world.rank() == 0)
          row = out;
      });
      print(row);
      rows.push_back(row);
    }
    if (!json.empty())
      std::ofstream(json) << rows.dump(2) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "train_step: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
