// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares attention over context ranks by a ring and by all-to-all, forward and backward, over links
/// of several speeds, with one rank that has the whole sequence.
///
/// Usage: context [--ranks N] [--sequence N] [--kv-heads N] [--turns N] [--json FILE]. The two ways take
/// turns on the same data; figures are medians over turns, from the first rank's start to the last one's end.

#include "timing.hpp"

#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using Qkv = sw::Layout<4, sw::Shard<1, cp>>;

struct Options {
  int ranks = 2;
  std::int64_t sequence = 2048;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 8;
  std::int64_t width = 64;
  int turns = 7;
  std::string json;

  [[nodiscard]] sw::HeadShape shape() const { return {heads / kv_heads, width}; }
};

/// Forward and backward pass of one layer's attention, from the fused input to its gradient.
template <class Context, class Mesh>
void pass(const Mesh& mesh, const Options& options, const sw::ShardedTensor<Qkv>& qkv,
          const sw::ShardedTensor<sw::AttentionLayout<Qkv>>& upstream) {
  using Input = typename Context::template AttentionInput<Qkv>;
  const sw::TokenPositions<typename Context::Order> positions(options.sequence, mesh.template extent<cp>(),
                                                              mesh.template coordinate<cp>());
  const auto input = sw::redistribute<Input>(qkv);
  const auto out = sw::attention(input, positions, options.shape());
  const auto value = sw::redistribute<sw::AttentionLayout<Qkv>>(out.value);
  const auto gradient = sw::redistribute<Qkv>(sw::attention_gradient(
      sw::redistribute<sw::AttentionLayout<Input>>(upstream), input, out, positions, options.shape()));
}

/// Seconds of the ring and of all-to-all.
std::array<double, 2> measure(const sw::HostCommunicator& world, const Options& options) {
  const sw::DeviceMesh mesh{world, sw::extent<cp>(world.size())};
  const sw::HeadShape shape = options.shape();
  sw::ShardedTensor<Qkv> qkv(mesh,
                             {1, options.sequence, options.kv_heads, (shape.queries + 2) * shape.width});
  sw::ShardedTensor<sw::AttentionLayout<Qkv>> upstream(mesh,
                                                       {1, options.sequence, options.heads * options.width});
  sw::fill_normal(qkv, {1, 1});
  sw::fill_normal(upstream, {1, 2});
  std::array<std::vector<double>, 2> seconds;
  sw::HostCommunicator ranks = world;
  for (int turn = 0; turn <= options.turns; ++turn)
    for (std::size_t way = 0; way < 2; ++way) {
      ranks.barrier();
      const Clock::time_point begin = Clock::now();
      if (way == 0)
        pass<sw::RingContext>(mesh, options, qkv, upstream);
      else
        pass<sw::AllToAllContext>(mesh, options, qkv, upstream);
      std::array<double, 1> own{seconds_since(begin)};
      ranks.all_reduce_in_place(own, sw::ReduceOp::maximum);
      if (turn > 0) // the first one warms up
        seconds[way].push_back(own[0]);
    }
  return {median(seconds[0]), median(seconds[1])};
}

void run(const Options& options) {
  double alone = 0;
  sw::launch({.ranks = 1}, [&](const sw::HostCommunicator& world) { alone = measure(world, options)[0]; });
  std::printf("one rank: %.1f ms for a sequence of %lld, %lld heads of %lld, %lld key and value heads\n",
              alone * 1e3, static_cast<long long>(options.sequence), static_cast<long long>(options.heads),
              static_cast<long long>(options.width), static_cast<long long>(options.kv_heads));
  std::printf("%-16s %12s %12s %10s %10s\n", "link, GB/s", "ring, ms", "a-to-a, ms", "speed-up", "speed-up");
  nlohmann::json lines = nlohmann::json::array();
  for (const double gigabytes : {0.0, 4.0, 1.0, 0.25}) {
    sw::launch({.ranks = options.ranks}, [&](const sw::HostCommunicator& world) {
      const auto link =
          gigabytes == 0
              ? world
              : sw::simulated_link(world, {.latency_seconds = 10e-6, .bytes_per_second = gigabytes * 1e9});
      const auto [ring, all_to_all] = measure(link, options);
      if (world.rank() != 0)
        return;
      const std::string name = gigabytes == 0 ? "shared memory" : std::to_string(gigabytes).substr(0, 4);
      std::printf("%-16s %12.1f %12.1f %10.2f %10.2f\n", name.c_str(), ring * 1e3, all_to_all * 1e3,
                  alone / ring, alone / all_to_all);
      lines.push_back(
          {{"gigabytes_per_second", gigabytes}, {"ring_seconds", ring}, {"all_to_all_seconds", all_to_all}});
    });
  }
  if (!options.json.empty())
    std::ofstream(options.json) << nlohmann::json{{"benchmark", "context"},
                                                  {"ranks", options.ranks},
                                                  {"sequence", options.sequence},
                                                  {"kv_heads", options.kv_heads},
                                                  {"one_rank_seconds", alone},
                                                  {"links", lines}}
                                       .dump(2)
                                << "\n";
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Attention over context ranks: ring against all-to-all"};
  app.add_option("--ranks", options.ranks, "Context ranks")->check(CLI::PositiveNumber);
  app.add_option("--sequence", options.sequence, "Tokens")->check(CLI::PositiveNumber);
  app.add_option("--kv-heads", options.kv_heads, "Key and value heads, of 8 heads")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--turns", options.turns, "Repetitions")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File for the figures");
  CLI11_PARSE(app, argc, argv);
  Kokkos::ScopeGuard kokkos(argc, argv);
  sw::kernels::use_single_threaded_blas();
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "context: %s\n", error.what());
    return 1;
  }
  return 0;
}
