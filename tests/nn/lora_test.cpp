// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/larger.hpp"
#include "support/plain_product.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Low-rank adapters over an existing model, against the model itself, dense updates, and one rank.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using shardwright_test::product;
using sw::axis::cp;
using sw::axis::dp;
using sw::axis::tp;
using train_test::losses_of;
using train_test::one_token_batch;
using train_test::small_mesh;
using train_test::SmallModel;
using Values = std::vector<double>;
using Named = std::map<std::string, Values>;

template <class Element, class Zero, class Target = sw::DefaultTarget>
using Base = SmallModel<Element, Zero, Target>;
template <class Element, class Zero, class Target = sw::DefaultTarget>
using WithLora = sw::Adapted<SmallModel<Element, sw::Frozen<Zero>, Target>>;
const sw::LoraOptions options{.rank = 3, .alpha = 6};

template <class Tensor> [[nodiscard]] Values whole(const Tensor& tensor) {
  const auto all = sw::local_values(sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor));
  return {all.begin(), all.end()};
}
template <class Model> [[nodiscard]] Named weights_of(Model& model) {
  Named out;
  sw::for_each_parameter(model, [&](auto& parameter) { out[parameter.name()] = whole(parameter.stored()); });
  return out;
}
/// The largest difference, relative to the largest element.
[[nodiscard]] double difference(const Values& values, const Values& wanted) {
  double most = values.size() == wanted.size() ? 0 : 1, size = 0;
  for (std::size_t i = 0; i < std::min(values.size(), wanted.size()); ++i) {
    most = shardwright_test::larger(most, std::abs(values[i] - wanted[i]));
    size = std::max(size, std::abs(wanted[i]));
  }
  return size == 0 ? most : most / size;
}
/// Loss and gradients of a step of two microbatches.
struct Gradients {
  double loss = 0;
  Named of{};
};
template <class Description, class Model>
[[nodiscard]] Gradients gradients(Model& model, const typename Description::Mesh& mesh) {
  sw::GradAccumulator accumulator(model);
  const std::vector batches{one_token_batch<Description>(mesh, 0, 0),
                            one_token_batch<Description>(mesh, 0, 1)};
  accumulator.add(model.run(batches));
  Gradients out{accumulator.finish().loss.value, {}};
  sw::for_each_trained_parameter(
      model, [&](auto& parameter) { out.of[parameter.name()] = whole(parameter.gradient()); });
  return out;
}

template <class Zero> void expect_base(const sw::HostCommunicator& world, Findings& findings) {
  using Adapters = WithLora<double, Zero>;
  for (const int tensor : {1, 2, 4}) {
    if (world.size() % tensor != 0)
      continue;
    const auto mesh = small_mesh(world, tensor);
    sw::SingleStageModel<Base<double, Zero>> base(mesh, {}, 3);
    sw::SingleStageModel<Adapters> model(mesh, {{}, options}, 3);
    const Gradients wanted = gradients<Base<double, Zero>>(base, mesh);
    const Gradients found = gradients<Adapters>(model, mesh);
    findings.expect(found.loss == wanted.loss, "the loss is ", found.loss, ", not ", wanted.loss);
    findings.expect(found.of.size() == 16, found.of.size(), " gradients");
    for (const auto& [name, values] : found.of) {
      const bool all_zero = std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
      findings.expect(all_zero == name.ends_with(".lora.a"), name);
    }
    const Named weights = weights_of(model);
    for (const auto& [name, values] : weights_of(base))
      findings.expect(weights.at(name) == values, name);
  }
}

/// After some steps, the gradients of A and B follow from those of the merged weights: dA = f dW B^T and dB =
/// f A^T dW.
template <class Element, class Zero>
void expect_dense(const sw::HostCommunicator& world, Findings& findings, int tensor, double tolerance) {
  using Adapters = WithLora<Element, Zero>;
  using Dense = Base<Element, Zero>;
  const auto mesh = small_mesh(world, tensor);
  sw::SingleStageModel<Adapters> model(mesh, {{}, options}, 3);
  {
    sw::Training training(mesh, model, sw::AdamW());
    static_cast<void>(losses_of<Adapters>(training, mesh, 3, 4));
  }
  const Gradients apart = gradients<Adapters>(model, mesh);
  const Named before = weights_of(model);
  sw::merge_adapters(model);
  const Named merged = weights_of(model);

  sw::SingleStageModel<Dense> dense(mesh, {}, 3);
  std::map<std::string, std::vector<Element>> blocks;
  model.for_each_parameter([&](auto& parameter) {
    if (!has(parameter.name(), ".lora"))
      blocks[parameter.name()] = sw::local_values(parameter.stored());
  });
  dense.for_each_parameter([&](auto& parameter) {
    parameter.fill_weights(
        [&](auto& weights) { sw::set_local_values(weights, blocks.at(parameter.name())); });
  });
  const Gradients together = gradients<Dense>(dense, mesh);
  findings.expect(std::abs(together.loss - apart.loss) <= tolerance * apart.loss, "the loss ", together.loss);
  const double factor = options.factor();
  for (const auto& [name, dw] : together.of) {
    const Values& a = before.at(name + ".lora.a");
    const Values& b = before.at(name + ".lora.b");
    Values sum = product(a, false, b, false, 3);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = before.at(name)[i] + factor * sum[i];
    findings.expect(difference(merged.at(name), sum) <= tolerance, name, " merged");
    findings.expect(merged.at(name) != before.at(name), name, " has not changed");
    Values da = product(dw, false, b, true, b.size() / 3), db = product(a, true, dw, false, a.size() / 3);
    for (double& each : da)
      each *= factor;
    for (double& each : db)
      each *= factor;
    // Sums of products of gradients that cancel.
    findings.expect(difference(apart.of.at(name + ".lora.a"), da) <= 10 * tolerance, name, " dA ",
                    difference(apart.of.at(name + ".lora.a"), da));
    findings.expect(difference(apart.of.at(name + ".lora.b"), db) <= 10 * tolerance, name, " dB ",
                    difference(apart.of.at(name + ".lora.b"), db));
  }
  findings.expect(has(failure_of<sw::LifecycleError>([&] { sw::merge_adapters(model); }),
                      "must be merged once, but it is merged already (unmerge it first)"),
                  "merged twice");
  sw::unmerge_adapters(model);
  const Named after = weights_of(model);
  for (const auto& [name, values] : before)
    findings.expect(difference(after.at(name), values) <= tolerance, name, " unmerged");
  findings.expect(has(failure_of<sw::LifecycleError>([&] { sw::unmerge_adapters(model); }),
                      "must be merged before it is unmerged"),
                  "unmerged twice");
}

/// The losses of twenty steps, and the adapters after them.
struct Run {
  Values losses;
  Named weights;
};
template <class Zero>
[[nodiscard]] Run run(const sw::HostCommunicator& world, int tensor, double dropout,
                      const char* pipeline = nullptr) {
  using Adapters = WithLora<double, Zero>;
  sw::LoraOptions with = options;
  with.dropout = dropout;
  if (dropout > 0) // the other layers have no gradients, and the first stages nothing to train
    with.matches = [](std::string_view path) { return path.starts_with("layers.2") || path == "head.out"; };
  if (pipeline == nullptr) {
    const auto mesh = small_mesh(world, tensor);
    sw::SingleStageModel<Adapters> model(mesh, {{}, with}, 3);
    sw::Training training(mesh, model, sw::AdamW());
    Values losses = losses_of<Adapters>(training, mesh, 20, 4);
    return {std::move(losses), weights_of(model)};
  }
  const auto mesh = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
  const auto schedule = sw::make_schedule(pipeline, 2, 4);
  sw::PipelineModel<Adapters> model(mesh, world, schedule.placement(),
                                    sw::LayerPartition(3, schedule.placement().stages()), {{}, with}, 3);
  sw::Training training(mesh, model, world, world, schedule, sw::AdamW());
  Values losses = losses_of<Adapters>(training, mesh, 20, 4);
  return {std::move(losses), weights_of(model)};
}

template <class Zero> void expect_runs(const sw::HostCommunicator& world, Findings& findings) {
  for (const double dropout : {0.0, 0.3}) {
    const Run alone = run<Zero>(sw::HostCommunicator(world).split(world.rank(), 0), 1, dropout);
    findings.expect(alone.losses.back() < 0.9 * alone.losses.front(), "nothing was learnt");
    const auto compare = [&](const Run& found, const std::string& what) {
      findings.expect(difference(found.losses, alone.losses) < 1e-11, what, ": losses differ by ",
                      difference(found.losses, alone.losses));
      for (const auto& [name, values] : found.weights)
        findings.expect(difference(values, alone.weights.at(name)) < 1e-9, what, ": ", name);
    };
    for (const int tensor : {1, 2, 4})
      if (world.size() % tensor == 0)
        compare(run<Zero>(world, tensor, dropout), "tp " + std::to_string(tensor));
    if (world.size() == 2)
      for (const char* policy : {"1f1b", "zbv", "dualpipev"})
        compare(run<Zero>(world, 1, dropout, policy), policy);
  }
}

} // namespace

TEST_CASE("an adapted model begins as its base: the same loss, bit for bit, and no gradient of A") {
  for (const int ranks : {1, 2, 3, 4}) {
    CHECK(on_ranks(ranks, expect_base<sw::DataParallel>) == "");
    CHECK(on_ranks(ranks, expect_base<sw::Zero3>) == "");
  }
}

TEST_CASE("adapters begin with the same bits on every mesh: normal numbers, or uniform ones by all inputs") {
  for (const auto initial : {sw::LoraInitial::normal, sw::LoraInitial::kaiming_uniform})
    for (const int ranks : {2, 4})
      CHECK(on_ranks(ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
              using Adapters = WithLora<double, sw::Zero3>;
              const auto begin = [&](const sw::HostCommunicator& some, int tensor) {
                sw::LoraOptions with = options;
                with.rank = 64;
                with.initial = initial;
                sw::SingleStageModel<Adapters> model(small_mesh(some, tensor), {{}, with}, 3);
                return weights_of(model);
              };
              const Named alone = begin(sw::HostCommunicator(world).split(world.rank(), 0), 1);
              for (const int tensor : {1, 2, ranks})
                findings.expect(begin(world, tensor) == alone, "tp ", tensor);
              for (const auto& [name, values] : alone) {
                if (!has(name, ".lora.a"))
                  continue;
                const double in = static_cast<double>(values.size()) / 64;
                const bool uniform = initial == sw::LoraInitial::kaiming_uniform;
                const double variance = uniform ? 1 / (3 * in) : 1. / 64;
                double squares = 0, most = 0;
                for (const double each : values) {
                  squares += each * each;
                  most = std::max(most, std::abs(each));
                }
                // The deviations of these means are 4% and 6%, of hundreds of elements.
                findings.expect(std::abs(squares / (64 * in) / variance - 1) < 0.4, name, " has variance ",
                                squares / (64 * in));
                findings.expect(!uniform || most <= 1 / std::sqrt(in), name, " reaches ", most);
              }
            }) == "");
}

namespace {

template <class Element, class Zero>
void expect_shared_base(const sw::HostCommunicator& world, Findings& findings) {
  using Model = sw::SingleStageModel<WithLora<Element, Zero>>;
  const auto mesh = small_mesh(world, 2);
  const auto steps = [&](Model& model, int count) {
    sw::Training training(mesh, model, sw::AdamW());
    return losses_of<WithLora<Element, Zero>>(training, mesh, count, 4);
  };
  Model model(mesh, {{}, options}, 3);
  const Named begins = weights_of(model);
  sw::OtherAdapters other(model);
  const Values first = steps(model, 5);
  const Named trained = weights_of(model);
  other.exchange(model);
  findings.expect(weights_of(model) == begins, "the others begin as the adapters did");
  findings.expect(steps(model, 5) == first && weights_of(model) == trained, "the same again");
  const Values further = steps(model, 2);
  const Named last = weights_of(model);
  other.exchange(model);
  findings.expect(weights_of(model) == trained, "the first are as they were left");

  const auto expect_refused = [&](Model& wrong, const char* sentence) {
    const Named before = weights_of(wrong);
    const std::string text = failure_of<sw::InvalidArgument>([&] { other.exchange(wrong); });
    findings.expect(has(text, sentence), text);
    findings.expect(weights_of(wrong) == before, "nothing is exchanged: ", sentence);
  };
  const auto with = [&](std::int64_t rank, const char* left_out, const auto& on) {
    sw::LoraOptions own = options;
    own.rank = rank;
    own.matches = [left_out](std::string_view path) { return path != left_out; };
    return Model(on, {{}, own}, 3);
  };
  Model larger = with(4, "", mesh);
  expect_refused(larger, "but it has in.lora.a [6, 4] where they have in.lora.a [6, 3] (give the model");
  Model fewer = with(3, "head.out", mesh);
  expect_refused(fewer, "but it has none where they have head.out.lora.a [6, 3] (");
  Model elsewhere = with(3, "", small_mesh(world, 2));
  expect_refused(elsewhere, "but it has in.lora.a [6, 3] on another mesh where they have it on theirs (");
  sw::OtherAdapters of_fewer(fewer);
  findings.expect(has(failure_of<sw::InvalidArgument>([&] { of_fewer.exchange(model); }),
                      "but it has head.out.lora.a [6, 3] where they have none ("),
                  "more adapters");
  findings.expect(weights_of(model) == trained, "none of more adapters is exchanged");

  other.exchange(model);
  findings.expect(weights_of(model) == last, "the others are as they were left");
  other.exchange(model);
  findings.expect(steps(model, 2) == further, "and the first train on from there");
  sw::merge_adapters(model);
  findings.expect(has(failure_of<sw::LifecycleError>([&] { other.exchange(model); }),
                      "is merged (call unmerge_adapters first)"),
                  "merged");
}

} // namespace

TEST_CASE("several adapters share a base: each is trained and used in turn, and does not change the others") {
  for (const int ranks : {2, 4}) {
    CHECK(on_ranks(ranks, expect_shared_base<double, sw::Zero3>) == "");
    CHECK(on_ranks(ranks, expect_shared_base<float, sw::Zero1>) == "");        // states in another layout
    CHECK(on_ranks(ranks, expect_shared_base<sw::bfloat16, sw::Zero3>) == ""); // with a master copy
  }
}

TEST_CASE("adapters are a dense update: of the merged weight, its loss and its gradients") {
  for (const auto& [ranks, tensor] : {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 2}, std::pair{3, 1}}) {
    const int t = tensor;
    CHECK(on_ranks(ranks, [t](const sw::HostCommunicator& world, Findings& findings) {
            expect_dense<double, sw::DataParallel>(world, findings, t, 1e-13);
            expect_dense<double, sw::Zero3>(world, findings, t, 1e-13);
            expect_dense<float, sw::Zero1>(world, findings, t, 4e-7);
          }) == "");
  }
}

TEST_CASE("merged low-precision weights are the sums, rounded once") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          using Adapters = WithLora<sw::bfloat16, sw::Zero3>;
          const auto mesh = small_mesh(world, 2);
          sw::SingleStageModel<Adapters> model(mesh, {{}, options}, 3);
          {
            sw::Training training(mesh, model, sw::AdamW());
            static_cast<void>(losses_of<Adapters>(training, mesh, 3, 4));
          }
          const Named before = weights_of(model);
          sw::merge_adapters(model);
          for (const auto& [name, values] : weights_of(model)) {
            if (has(name, ".lora"))
              continue;
            const Values delta =
                product(before.at(name + ".lora.a"), false, before.at(name + ".lora.b"), false, 3);
            bool near = true;
            for (std::size_t i = 0; i < delta.size(); ++i) {
              const double sum = before.at(name)[i] + options.factor() * delta[i];
              // Half the distance of bfloat16 numbers.
              near = near && std::abs(values[i] - sum) <= std::ldexp(1. / 256, std::ilogb(sum)) + 1e-7;
            }
            findings.expect(near && values != before.at(name), name);
          }
        }) == "");
}

TEST_CASE("losses and adapters of twenty steps are those of one rank on every mesh and pipeline") {
  for (const int ranks : {2, 3, 4}) {
    CHECK(on_ranks(ranks, expect_runs<sw::DataParallel>) == "");
    CHECK(on_ranks(ranks, expect_runs<sw::Zero3>) == "");
  }
}

namespace {

/// One layer with its layouts, whose adapter is not zero.
template <class In, class Weight, std::size_t rank>
void expect_gradients(const sw::DeviceMesh<dp, cp, tp>& mesh, const std::array<std::int64_t, rank>& shape,
                      Findings& findings, const char* what) {
  using Plan = sw::ModelPlan<double, sw::Frozen<sw::Zero3>>;
  sw::Linear<In, Weight, Plan> layer(mesh, shape, sw::Initial::normal(0.5));
  findings.expect(sw::adapt(layer, {.rank = 2, .alpha = 3, .rank_stabilized = true}, "layer") == 1, "count");
  sw::initialize(layer, 1, "layer");
  sw::for_each_trained_parameter(layer, [](auto& parameter) {
    parameter.fill_weights([](auto& weights) { sw::fill_normal(weights, {3, 4}); });
  });
  sw::ShardedTensor<In, double> x(mesh, {5, shape[0]});
  if constexpr (In::value.has_partial()) {
    for (std::size_t i = 0; i < x.local_size(); ++i) // summands of the ranks along tp
      x.mutable_data()[i] = std::sin(static_cast<double>(i) + mesh.template coordinate<tp>());
  } else {
    sw::fill_normal(x, {1, 2});
  }
  const auto found =
      sw::check_gradients([&](auto v) { return layer(v); }, sw::members("x", x, "layer", layer));
  findings.expect(found.error < 1e-6, what, ": ", found.input);
}

} // namespace

TEST_CASE("gradients of adapters agree with differences in every layout of a linear layer") {
  for (const auto& [ranks, tensor] : {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 2}, std::pair{3, 3}}) {
    const int t = tensor;
    CHECK(on_ranks(ranks, [t](const sw::HostCommunicator& world, Findings& findings) {
            using Rows = sw::Layout<2, sw::Shard<0, dp>>;
            using Split = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
            using Sequence = sw::Layout<2, sw::Shard<0, dp, tp>>;
            using Unfinished = sw::Layout<2, sw::Partial<sw::Sum, tp>>;
            const auto mesh = small_mesh(world, t);
            const std::array<std::int64_t, 2> shape{6, 7};
            expect_gradients<Rows, sw::Layout<2>>(mesh, shape, findings, "whole");
            expect_gradients<Sequence, sw::Layout<2>>(mesh, shape, findings, "rows over both");
            expect_gradients<Rows, sw::Layout<2, sw::Shard<1, tp>>>(mesh, shape, findings, "column-parallel");
            expect_gradients<Split, sw::Layout<2, sw::Shard<0, tp>>>(mesh, shape, findings, "row-parallel");
            expect_gradients<Rows, sw::Layout<3, sw::Shard<1, tp>>>(
                mesh, std::array<std::int64_t, 3>{6, 4, 3}, findings, "heads");
            expect_gradients<Unfinished, sw::Layout<2>>(mesh, shape, findings, "of an incomplete sum");
          }) == "");
  }
}

TEST_CASE("a filter of paths chooses the layers, and what cannot be is an error") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          using Adapters = WithLora<double, sw::DataParallel>;
          const auto mesh = small_mesh(world, 2);
          const auto with = [](auto matches, std::int64_t rank = 2) {
            return Adapters::Config{{}, {.rank = rank, .matches = matches}};
          };
          sw::SingleStageModel<Adapters> model(
              mesh, with([](std::string_view path) { return path.ends_with(".down"); }), 3);
          std::string names;
          sw::for_each_trained_parameter(model, [&](auto& parameter) { names += parameter.name() + " "; });
          findings.expect(names == "layers.0.down.lora.a layers.0.down.lora.b layers.1.down.lora.a "
                                   "layers.1.down.lora.b layers.2.down.lora.a layers.2.down.lora.b ",
                          names);
          const sw::LoraOptions usual;
          findings.expect(usual.matches("layers.1.mlp.experts.up") &&
                              !usual.matches("layers.1.mlp.router.weight"),
                          "routers");
          const auto none = with([](std::string_view) { return false; });
          const auto said = [](auto call) { return failure_of<sw::InvalidArgument>(call); };
          findings.expect(
              has(said([&] { sw::SingleStageModel<Adapters>(mesh, none, 3); }),
                  "at least one layer of the model must get an adapter, but matches chooses none"),
              "none");
          const auto stages = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
          const auto schedule = sw::make_schedule("1f1b", 2, 2);
          const auto staged = [&](const Adapters::Config& config) {
            sw::PipelineModel<Adapters> made(stages, world, schedule.placement(), sw::LayerPartition(3, 2),
                                             config, 3);
            const auto& stage = *made.chunks().front();
            return std::pair{stage.takes_gradient(), stage.returns_gradient()};
          };
          const bool last = world.rank() == 1;
          findings.expect(staged(with([](std::string_view path) { return path == "head.out"; })) ==
                              std::pair{last, false},
                          "of the last stage");
          findings.expect(staged(with([](std::string_view path) { return path == "layers.0.up"; })) ==
                              std::pair{true, last},
                          "of the first stage");
          findings.expect(has(said([&] { static_cast<void>(staged(none)); }),
                              "embeddings and heads need LoraOptions::tables, too)"),
                          "no stage has one");
          const auto zero = with([](std::string_view) { return true; }, 0);
          findings.expect(has(said([&] { sw::SingleStageModel<Adapters>(mesh, zero, 3); }),
                              "the rank must be at least 1, but it is 0"),
                          "rank 0");
          using Unfinished = sw::Layout<2, sw::Partial<sw::Sum, tp>>;
          using Plan = sw::ModelPlan<double, sw::Frozen<sw::DataParallel>>;
          sw::Linear<Unfinished, sw::Layout<2>, Plan> layer(mesh, {3, 4}, sw::Initial::normal(1));
          findings.expect(has(said([&] { sw::adapt(layer, {.dropout = 0.1}, "layer"); }),
                              "dropout must not be asked for layer, whose input is an incomplete sum"),
                          "dropout");
          findings.expect(has(said([&] { sw::OtherAdapters<decltype(layer)> others(layer); }),
                              "but this model has none yet (call adapt() first)"),
                          "no adapters to exchange");
          sw::adapt(layer, {}, "layer");
          findings.expect(has(failure_of<sw::LifecycleError>([&] { sw::adapt(layer, {}, "layer"); }),
                              "layer has one already (adapt a model once)"),
                          "adapted twice");
          struct Two {
            sw::Linear<sw::Layout<2>, sw::Layout<2>, Plan> whole;
            sw::Linear<Unfinished, sw::Layout<2>, Plan> unfinished;
            auto members() { return sw::members("whole", whole, "unfinished", unfinished); }
          } two{{mesh, {3, 4}, sw::Initial::normal(1)}, {mesh, {3, 4}, sw::Initial::normal(1)}};
          findings.expect(has(said([&] { sw::adapt(two, {.dropout = 0.1}); }), "asked for unfinished,"),
                          "dropout of one of two");
          findings.expect(sw::adapt(two, {}) == 2, "adapted after it was refused");
          findings.expect(has(failure_of<sw::LifecycleError>([&] { sw::adapt(two, {}); }), "whole has one"),
                          "both still adapted");
        }) == "");
}

TEST_CASE("named outputs must fill a dimension of outputs that is not sharded") {
  CHECK(
      on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
        using Plan = sw::ModelPlan<double, sw::Frozen<sw::DataParallel>>;
        using Whole = sw::Layout<2>;
        using Parts = std::initializer_list<std::pair<std::string_view, std::int64_t>>;
        const auto mesh = small_mesh(world, 2);
        const auto expect_refused = [&](auto& layer, std::size_t dimension, Parts parts,
                                        const char* sentence) {
          const std::string text = failure_of<sw::InvalidArgument>([&] {
            layer.name_outputs(dimension, parts);
            sw::adapt(layer, {.rank = 2}, "layer");
          });
          findings.expect(has(text, sentence), text);
        };
        sw::Linear<Whole, Whole, Plan> fused(mesh, {3, 16}, sw::Initial::normal(1));
        expect_refused(fused, 1, {{"a", 8}, {"b", 7}},
                       "fill the 16 elements of dimension 1, but their sum is 15");
        expect_refused(fused, 1, {{"a", 16}, {"b", 0}}, "must name parts of at least 1");
        expect_refused(fused, 0, {{"a", 3}}, "but 0 is none");
        expect_refused(fused, 2, {{"a", 3}}, "but 2 is none");
        expect_refused(fused, 1, {{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}}, "at most 3 parts, but it gets 4");
        fused.name_outputs(1, {{"a", 9}, {"b", 7}});
        findings.expect(sw::adapt(fused, {.rank = 2}, "layer") == 2, "two parts");
        sw::Linear<Whole, sw::Layout<2, sw::Shard<1, tp>>, Plan> split(mesh, {3, 16}, sw::Initial::normal(1));
        expect_refused(split, 1, {{"a", 8}, {"b", 8}}, "that is not sharded, but dimension 1 is");
      }) == "");
}

namespace {

constexpr int dry_ranks = 4;

template <class Description, class AtStep>
void train_for_memory(const sw::HostCommunicator& world, const AtStep& at_step) {
  const auto mesh = small_mesh(world, 2);
  sw::SingleStageModel<Description> model(mesh, {{}, options}, 3);
  sw::Training training(mesh, model, sw::AdamW());
  std::vector<typename Description::Batch> batches{one_token_batch<Description>(mesh, 0, 0)};
  for (int step = 0; step < 2; ++step) {
    static_cast<void>(training.step(
        [&](std::int64_t) -> auto& { return batches; }, 0.01));
    at_step(step, mesh.template pool_statistics<typename Description::target>());
  }
}

/// Bytes of this rank's parts of frozen and of trained weights.
template <class Description> [[nodiscard]] std::pair<std::int64_t, std::int64_t> bytes_of_weights(int rank) {
  std::pair<std::int64_t, std::int64_t> out{};
  static_cast<void>(sw::dry_run(dry_ranks, rank, [&](const sw::HostCommunicator& world) {
    const auto mesh = small_mesh(world, 2);
    sw::SingleStageModel<Description> model(mesh, {{}, options}, 3);
    sw::for_each_parameter(model, [&]<class P>(P& parameter) {
      (P::trained ? out.second : out.first) +=
          static_cast<std::int64_t>(parameter.stored().local_size() * sizeof(double));
    });
  }));
  return out;
}

template <class Zero> void expect_memory() {
  std::array<sw::DryRun, dry_ranks> predicted;
  for (int rank = 0; rank < dry_ranks; ++rank)
    predicted[static_cast<std::size_t>(rank)] =
        sw::dry_run(dry_ranks, rank, [](const sw::HostCommunicator& world) {
          train_for_memory<WithLora<double, Zero, sw::Counting<sw::DefaultTarget>>>(
              world, [](int, const sw::PoolStatistics&) {});
        });
  // Beside the base there are adapters, their gradients and two moments, and what a microbatch keeps.
  for (int rank = 0; rank < dry_ranks; ++rank) {
    const auto [base, adapters] =
        bytes_of_weights<WithLora<double, Zero, sw::Counting<sw::DefaultTarget>>>(rank);
    const sw::MemoryTable& memory = predicted[static_cast<std::size_t>(rank)].memory;
    CHECK(memory[sw::MemoryKind::parameters] == base + adapters);
    CHECK(memory[sw::MemoryKind::optimizer_state] == 2 * adapters);
    CHECK(memory[sw::MemoryKind::gradients] <= 2 * adapters); // as added up, and as reduced
  }
  CHECK(on_ranks(dry_ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
          shardwright_test::expect_predicted(
              predicted[static_cast<std::size_t>(world.rank())], world,
              [](const sw::HostCommunicator& all, const auto& at_step) {
                train_for_memory<WithLora<double, Zero>>(all, at_step);
              },
              "adapters", findings);
        }) == "");
}

} // namespace

TEST_CASE("a dry run predicts memory and calls of a training of adapters") {
  expect_memory<sw::DataParallel>();
  expect_memory<sw::Zero3>();
}
