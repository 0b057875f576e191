// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/plain_product.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/nn/layers/output_table.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
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
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using shardwright_test::product;

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

namespace {

constexpr std::int64_t words = 12;

/// A language model of two tables.
struct Tables {
  using Ids = sw::Layout<2, sw::Shard<0, dp>>;
  using Words = sw::Layout<2, sw::Shard<0, tp>>;
  using Table = sw::Embedding<Ids, Words, Plan>::Table;

  explicit Tables(const Mesh& mesh)
      : embedding(mesh, words, width, sw::Initial::normal(0.5)),
        head(sw::SharedParts().tied<Table>("m.head", [&] {
          return Table(mesh, {words, width}, sw::Initial::normal(0.5));
        })) {}
  template <class Tokens>
  [[nodiscard]] auto loss(sw::Tape<>& tape, const Tokens& ids, const Tokens& targets) {
    return head.loss(embedding(tape, ids).template as<Layouts::Tokens>(), targets);
  }
  auto members() { return sw::members("embedding", embedding, "head", head); }

  sw::Embedding<Ids, Words, Plan> embedding;
  sw::OutputTable<Layouts::Tokens, Table> head;
};

/// Loss and gradients of a batch with whole tables, by plain formulas: x = embedding[ids], the mean cross
/// entropy of x head^T.
struct DenseTables {
  double loss = 0;
  Vector embedding = Vector(words * width), head = Vector(words * width); ///< Gradients.

  DenseTables(const Vector& of_embedding, const Vector& of_head, const Vector& ids, const Vector& targets) {
    for (std::size_t token = 0; token < ids.size(); ++token) {
      const double* const x = &of_embedding[static_cast<std::size_t>(ids[token]) * width];
      Vector share(words);
      double sum = 0;
      for (std::size_t word = 0; word < words; ++word) {
        double score = 0;
        for (std::size_t i = 0; i < width; ++i)
          score += x[i] * of_head[word * width + i];
        sum += share[word] = std::exp(score);
      }
      const auto target = static_cast<std::size_t>(targets[token]);
      loss -= std::log(share[target] / sum) / static_cast<double>(ids.size());
      for (std::size_t word = 0; word < words; ++word) {
        const double gradient =
            (share[word] / sum - (word == target ? 1 : 0)) / static_cast<double>(ids.size());
        for (std::size_t i = 0; i < width; ++i) {
          head[word * width + i] += gradient * x[i];
          embedding[static_cast<std::size_t>(ids[token]) * width + i] += gradient * of_head[word * width + i];
        }
      }
    }
  }
};

} // namespace

TEST_CASE("embedding and head have adapters, which are dense updates of their tables") {
  for (const Extents extents : {Extents{1, 1}, Extents{2, 2}, Extents{1, 3}})
    CHECK(on_ranks(extents.data * extents.tensor, [extents](const auto& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            Tables model(mesh);
            const sw::LoraOptions options{.rank = 2, .alpha = 3, .tables = true};
            findings.expect(sw::adapt(model, options, "m") == 2, "two adapters");
            sw::initialize(model, 5, "m");
            sw::ShardedTensor<Tables::Ids, std::int32_t> ids(mesh, {batch, sequence}),
                targets(mesh, ids.shape());
            const std::int64_t first = ids.local_offset()[0] * sequence;
            for (std::size_t i = 0; i < ids.local_size(); ++i) {
              const auto token = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
              ids.mutable_data()[i] = token * token % 7; // not all words
              targets.mutable_data()[i] = (5 * token + 1) % words;
            }
            std::map<std::string, Vector> weights, gradients;
            const auto run = [&] {
              weights.clear();
              sw::for_each_parameter(
                  model, [&](auto& parameter) { weights[parameter.name()] = whole_of(parameter.stored()); });
              sw::GradAccumulator accumulator(model);
              sw::Tape<> tape(sw::Recording::training);
              auto loss = model.loss(tape, ids, targets);
              tape.backward();
              accumulator.add(std::move(loss));
              const double mean = accumulator.finish().loss.value;
              sw::for_each_trained_parameter(model, [&](auto& parameter) {
                gradients[parameter.name()] = whole_of(parameter.gradient());
              });
              return mean;
            };
            const auto dense = [&](double factor) {
              Vector embedding = product(weights.at("m.embedding.lora.a"), false,
                                         weights.at("m.embedding.lora.b"), false, 2);
              Vector head = product(weights.at("m.head.lora.b"), true, weights.at("m.head.lora.a"), true, 2);
              for (std::size_t i = 0; i < head.size(); ++i) {
                embedding[i] = weights.at("m.embedding")[i] + factor * embedding[i];
                head[i] = weights.at("m.head")[i] + factor * head[i];
              }
              return DenseTables(embedding, head, whole_of(ids), whole_of(targets));
            };
            const double begins = run();
            findings.expect(std::abs(begins - dense(0).loss) < 1e-13, "begins as ", begins);
            for (const char* name : {"m.embedding.lora.b", "m.head.lora.a"}) // the others are zeros
              findings.expect(gradients.at(name) == Vector(gradients.at(name).size()), name);
            std::uint64_t number = 30;
            sw::for_each_trained_parameter(model, [&](auto& parameter) {
              parameter.fill_weights([&](auto& values) { sw::fill_normal(values, {1, ++number}, 0, 0.4); });
            });
            const double loss = run(), factor = options.factor();
            const DenseTables wanted = dense(factor);
            findings.expect(std::abs(loss - wanted.loss) < 1e-13, loss, ", not ", wanted.loss);
            const auto expect_gradient = [&](const char* name, Vector found) {
              for (double& each : found)
                each *= factor * batch * sequence; // gradients are those of the sum over tokens
              findings.expect(difference(gradients.at(name), found) < 1e-13, name, ": ",
                              difference(gradients.at(name), found));
            };
            expect_gradient("m.embedding.lora.a",
                            product(wanted.embedding, false, weights.at("m.embedding.lora.b"), true, width));
            expect_gradient("m.embedding.lora.b",
                            product(weights.at("m.embedding.lora.a"), true, wanted.embedding, false, words));
            expect_gradient("m.head.lora.a",
                            product(wanted.head, true, weights.at("m.head.lora.b"), true, words));
            expect_gradient("m.head.lora.b",
                            product(weights.at("m.head.lora.a"), true, wanted.head, true, width));
            const auto scores = [&] {
              sw::Tape<> tape(sw::Recording::evaluation);
              return whole_of(model.head.scores(model.embedding(tape, ids).template as<Layouts::Tokens>()));
            };
            const Vector apart = scores();
            sw::merge_adapters(model);
            findings.expect(difference(scores(), apart) < 1e-13, "merged");
            weights.at("m.embedding") = whole_of(model.embedding.weight().stored());
            weights.at("m.head") = whole_of(model.head.weight().stored());
            findings.expect(std::abs(dense(0).loss - loss) < 1e-13, "the tables are merged");
            sw::unmerge_adapters(model);
            findings.expect(difference(scores(), apart) < 1e-13, "unmerged");
          }) == "");
}

TEST_CASE("a table that is embedding and head has no adapter, by whichever of them it is chosen") {
  struct Tied {
    sw::Embedding<Tables::Ids, Tables::Words, Plan, true> embedding;
    sw::OutputTable<Layouts::Tokens, Tables::Table> head;
    sw::Linear<Layouts::Tokens, sw::Layout<2>, Plan> other;
    explicit Tied(const Mesh& mesh, sw::SharedParts shared = {})
        : embedding(table(mesh, shared)), head(table(mesh, shared)),
          other(mesh, {width, width}, sw::Initial::normal(0.5)) {}
    [[nodiscard]] static sw::TiedParameter<Tables::Table> table(const Mesh& mesh, sw::SharedParts& shared) {
      return shared.tied<Tables::Table>("words", [&] {
        return Tables::Table(mesh, {words, width}, sw::Initial::normal(0.5));
      });
    }
    auto members() { return sw::members("embedding", embedding, "head", head, "other", other); }
  };
  CHECK(on_ranks(1, [](const auto& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 1});
          const auto chosen = [](std::string_view name) {
            return sw::LoraOptions{.tables = true,
                                   .matches = [name](std::string_view path) { return path == name; }};
          };
          for (const sw::LoraOptions& options :
               {sw::LoraOptions{.tables = true}, chosen("m.embedding"), chosen("m.head")}) {
            Tied model(mesh);
            const std::string text = failure_of<sw::InvalidArgument>([&] { sw::adapt(model, options, "m"); });
            findings.expect(has(text, "must not be tied, but parts of this model share words (adapt"), text);
          }
          for (const sw::LoraOptions& options : {sw::LoraOptions{}, chosen("m.other")}) {
            Tied model(mesh);
            findings.expect(sw::adapt(model, options, "m") == 1, "one adapter, beside the table");
          }
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
