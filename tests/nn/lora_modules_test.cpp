// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// Adapters inside the library's modules: their gradients against differences, and merged ones against the
// others.

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Plan = sw::ModelPlan<double, sw::Frozen<sw::DataParallel>>;
constexpr std::int64_t batch = 3, sequence = 4, width = 8;
const sw::TokenPositions<sw::NaturalOrder> positions(sequence, 1, 0);

/// Adapts a module and gives its adapters random values; returns the paths of their parameters.
template <class Module> [[nodiscard]] std::string adapted(Module& module, const sw::LoraOptions& options) {
  static_cast<void>(sw::adapt(module, options, "m"));
  sw::initialize(module, 5, "m");
  std::string out;
  std::uint64_t number = 30;
  sw::for_each_trained_parameter(module, [&](auto& parameter) {
    out += parameter.name() + " ";
    parameter.fill_weights([&](auto& weights) { sw::fill_normal(weights, {1, ++number}, 0, 0.4); });
  });
  return out;
}

/// Gradients agree with differences, and merged weights give the same value.
template <class Module, class Call, class Inputs>
void expect_adapted(Module& module, const Call& call, const Inputs& inputs, const char* what,
                    Findings& findings) {
  const sw::GradientDifference worst = sw::check_gradients(call, inputs, {.directions = 1});
  findings.expect(worst.error < 1e-6, what, ": the slope of ", worst.input, " differs by ", worst.error);
  const auto value = [&] {
    sw::Tape<> tape(sw::Recording::evaluation);
    return whole_of(call(tape.input(inputs.object)).value());
  };
  const Vector apart = value();
  sw::merge_adapters(module);
  findings.expect(difference(value(), apart) < 1e-12, what, " merged differs by ",
                  difference(value(), apart));
  sw::unmerge_adapters(module);
  findings.expect(difference(value(), apart) < 1e-12, what, " unmerged");
}

struct Layouts {
  using Tokens = sw::Layout<3, sw::Shard<0, dp>>;
  using Residual = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  using Qkv = sw::Layout<3, sw::Shard<1, tp>>;
  using GateUp = sw::Layout<3, sw::Shard<2, tp>>;
  using AttentionInput = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
  using Output = sw::Layout<2, sw::Shard<0, tp>>;
  using Down = sw::Layout<2, sw::Shard<0, tp>>;
};

} // namespace

TEST_CASE("queries, keys and values have adapters of their own, and so have gate and up") {
  for (const Extents extents : {Extents{1, 1}, Extents{2, 2}, Extents{1, 3}})
    CHECK(on_ranks(extents.data * extents.tensor, [extents](const auto& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const auto x = random_tensor<Layouts::Tokens>(mesh, {batch, sequence, width}, 1);
            const sw::AttentionSizes sizes{
                .width = width, .heads = 12, .kv_heads = 6, .head_width = 4, .head_norm = 1e-3};
            const auto attention = [&](const sw::LoraOptions& options, const std::string& wanted) {
              using Module = sw::Attention<Layouts, Plan>;
              Module module(mesh, sizes, sw::Initial::normal(0.5), sw::Initial::normal(0.5),
                            std::make_shared<const typename Module::Angles>(mesh, sequence, 4, 50));
              const std::string names = adapted(module, options);
              findings.expect(names == wanted, names);
              expect_adapted(
                  module, [&](auto v) { return module(v, positions); }, sw::members("x", x, "m", module),
                  "attention", findings);
            };
            attention({.rank = 2}, "m.qkv.queries.lora.a m.qkv.queries.lora.b m.qkv.keys.lora.a "
                                   "m.qkv.keys.lora.b m.qkv.values.lora.a m.qkv.values.lora.b m.out.lora.a "
                                   "m.out.lora.b ");
            attention(
                {.rank = 3,
                 .matches =
                     [](std::string_view path) { return path == "m.qkv.queries" || path == "m.qkv.values"; }},
                "m.qkv.queries.lora.a m.qkv.queries.lora.b m.qkv.values.lora.a m.qkv.values.lora.b ");
            sw::SwiGlu<Layouts, Plan> mlp(mesh, width, 6, sw::Initial::normal(0.5), sw::Initial::normal(0.5));
            const std::string names = adapted(mlp, {.rank = 2, .alpha = 3});
            findings.expect(names == "m.gate_up.gate.lora.a m.gate_up.gate.lora.b m.gate_up.up.lora.a "
                                     "m.gate_up.up.lora.b m.down.lora.a m.down.lora.b ",
                            names);
            expect_adapted(
                mlp, [&](auto v) { return mlp(v); }, sw::members("x", x, "m", mlp), "swiglu", findings);
          }) == "");
}

TEST_CASE("the matrices of latent attention have adapters") {
  for (const Extents extents : {Extents{1, 1}, Extents{2, 2}})
    CHECK(on_ranks(extents.data * extents.tensor, [extents](const auto& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const auto x = random_tensor<Layouts::Residual>(mesh, {batch, sequence, width}, 1);
            using Module = sw::MultiHeadLatentAttention<Layouts, Plan>;
            const sw::LatentAttentionSizes sizes{.width = width,
                                                 .heads = 4,
                                                 .query_rank = 5,
                                                 .key_value_rank = 4,
                                                 .plain_width = 3,
                                                 .rotary_width = 4,
                                                 .value_width = 5,
                                                 .norm_epsilon = 1e-3};
            Module module(mesh, sizes, sw::Initial::normal(0.5), sw::Initial::normal(0.5),
                          std::make_shared<const typename Module::Angles>(mesh, sequence, 4, 50));
            const std::string names = adapted(module, {.rank = 2});
            for (const char* name : {"query_down", "query_up", "down", "up", "rotary_key", "out"})
              findings.expect(names.find("m." + std::string(name) + ".lora.b ") != std::string::npos, name);
            expect_adapted(
                module, [&](auto v) { return module(v, positions); }, sw::members("x", x, "m", module),
                "latent attention", findings);
          }) == "");
}

TEST_CASE("every expert has adapters, wherever it is, and split inside") {
  using ExpertMesh = sw::DeviceMesh<dp, ep, tp>;
  using Tokens = sw::Layout<3, sw::Shard<0, dp, ep>>;
  constexpr std::int64_t experts = 4, slots = 2;
  for (const auto& [d, e, t] : {std::array{1, 1, 1}, std::array{2, 2, 1}, std::array{1, 2, 2}}) {
    const auto extents = std::array{d, e, t};
    CHECK(on_ranks(d * e * t, [extents](const auto& world, Findings& findings) {
            const ExpertMesh mesh{world, sw::extent<dp>(extents[0]), sw::extent<ep>(extents[1]),
                                  sw::extent<tp>(extents[2])};
            const auto x = random_tensor<Tokens>(mesh, {6, 3, width}, 1);
            const auto gates = random_tensor<Tokens>(mesh, {6, 3, slots}, 2);
            sw::ShardedTensor<Tokens, std::int32_t> choices(mesh, {6, 3, slots});
            const std::int64_t first = choices.local_offset()[0] * 3;
            for (std::size_t i = 0; i < choices.local_size(); ++i) {
              const auto token = first + static_cast<std::int64_t>(i) / slots;
              const auto slot = static_cast<std::int64_t>(i) % slots;
              choices.mutable_data()[i] = static_cast<std::int32_t>((token * token + slot) % experts);
            }
            sw::ExpertMlp<Tokens, sw::AxisList<ep>, sw::AxisList<tp>, Plan> module(
                mesh, {width, 6, {experts, 6 * 3 * slots}}, sw::Initial::normal(0.5),
                sw::Initial::normal(0.5));
            const std::string names = adapted(module, {.rank = 2});
            findings.expect(names == "m.gate.lora.a m.gate.lora.b m.up.lora.a m.up.lora.b m.down.lora.a "
                                     "m.down.lora.b ",
                            names);
            expect_adapted(
                module,
                [&](auto v) {
                  return module(v, choices, sw::detail::leaf_on(v.tape(), gates.share(), false, {}));
                },
                sw::members("x", x, "m", module), "experts", findings);
          }) == "");
  }
}
