// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/nn/layers/head_norm.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/tape/detach.hpp>
#include <shardwright/train/tape/recompute.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

// Frozen parameters: what is trained beside them is trained as before, and nothing else is computed or kept.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::cp;
using sw::axis::dp;
using sw::axis::tp;
using train_test::small_batch;
using train_test::small_mesh;
using train_test::SmallModel;

template <class Zero, class Target = sw::DefaultTarget> using Trained = SmallModel<double, Zero, Target>;
/// Only the head is trained.
template <class Zero, class Target = sw::DefaultTarget>
using FrozenBody = SmallModel<double, sw::Frozen<Zero>, Target, Zero>;
/// Only the head is frozen.
template <class Zero, class Target = sw::DefaultTarget>
using FrozenHead = SmallModel<double, Zero, Target, sw::Frozen<Zero>>;

/// The loss of two microbatches and the gradients, by name.
struct Gradients {
  double loss = 0;
  double norm = 0;
  double scale = 0; ///< Of the gradients in the norm.
  std::map<std::string, std::vector<double>> of{};
};
template <class Description> [[nodiscard]] Gradients gradients(const typename Description::Mesh& mesh) {
  sw::SingleStageModel<Description> model(mesh, {}, 3);
  sw::GradAccumulator accumulator(model);
  const std::vector batches{small_batch<Description>(mesh, 0, 0), small_batch<Description>(mesh, 0, 1)};
  accumulator.add(model.run(batches));
  const sw::GradientSummary summary = accumulator.finish();
  Gradients out{summary.loss.value, summary.gradient_norm, summary.scale.factor()};
  sw::for_each_trained_parameter(model, [&](auto& parameter) {
    const auto all = sw::redistribute<sw::Layout<2>>(parameter.gradient());
    out.of[parameter.name()] = {all.data(), all.data() + all.local_size()};
  });
  return out;
}

template <class Zero> void expect_same_gradients(const sw::HostCommunicator& world, Findings& findings) {
  const auto mesh = small_mesh(world, world.size() % 2 == 0 ? 2 : 1);
  const Gradients all = gradients<Trained<Zero>>(mesh);
  const auto compare = [&](const Gradients& some, std::size_t count, const char* what) {
    findings.expect(some.of.size() == count && all.of.size() == 8, what, ": ", some.of.size(), " gradients");
    findings.expect(some.loss == all.loss, what, ": the loss");
    double square = 0;
    for (const auto& [name, values] : some.of) {
      findings.expect(values == all.of.at(name), what, ": the gradient of ", name);
      for (const double value : values)
        square += value * value;
    }
    findings.expect(std::abs(some.norm - some.scale * std::sqrt(square)) < 1e-12 * some.norm, what,
                    ": the norm ", some.norm);
  };
  compare(gradients<FrozenBody<Zero>>(mesh), 1, "frozen body");
  compare(gradients<FrozenHead<Zero>>(mesh), 7, "frozen head");
}

} // namespace

TEST_CASE("the gradients of trained parameters beside frozen ones are bitwise those of a whole training") {
  for (const int ranks : {1, 2, 3, 4}) {
    CHECK(on_ranks(ranks, expect_same_gradients<sw::DataParallel>) == "");
    CHECK(on_ranks(ranks, expect_same_gradients<sw::Zero3>) == "");
  }
}

namespace {

/// Steps with weight decay: their losses, and the weights before and after by name.
struct Steps {
  std::vector<double> losses{};
  std::map<std::string, std::vector<double>> before{}, after{};
};
template <class Model> void read_weights(Model& model, std::map<std::string, std::vector<double>>& to) {
  model.for_each_parameter([&](auto& parameter) {
    const auto all = sw::redistribute<sw::Layout<2>>(parameter.stored());
    to[parameter.name()] = {all.data(), all.data() + all.local_size()};
  });
}
template <class Description, class Model, class Train>
[[nodiscard]] Steps steps_of(Model& model, Train& training, const typename Description::Mesh& mesh) {
  using Batch = typename Description::Batch;
  Steps out;
  read_weights(model, out.before);
  for (int step = 0; step < 3; ++step) {
    std::vector<Batch> batches;
    const auto report = training.step(
        [&](std::int64_t number) {
          batches.clear();
          for (int pass = 0; pass < 4; ++pass)
            batches.push_back(small_batch<Description>(mesh, number, pass));
          return std::span<const Batch>(batches);
        },
        0.01);
    out.losses.push_back(report->loss);
  }
  training.require_equal_replicas();
  read_weights(model, out.after);
  return out;
}

template <class Description> [[nodiscard]] Steps on_one_stage(const sw::HostCommunicator& world) {
  const auto mesh = small_mesh(world, world.size() % 2 == 0 ? 2 : 1);
  sw::SingleStageModel<Description> model(mesh, {}, 3);
  sw::Training training(mesh, model, sw::AdamW());
  return steps_of<Description>(model, training, mesh);
}
template <class Description>
[[nodiscard]] Steps on_two_stages(const sw::HostCommunicator& world, const char* policy) {
  const auto mesh = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
  const auto schedule = sw::make_schedule(policy, 2, 4);
  sw::PipelineModel<Description> model(mesh, world, schedule.placement(),
                                       sw::LayerPartition(3, schedule.placement().stages()), {}, 3);
  sw::Training training(mesh, model, world, world, schedule, sw::AdamW());
  return steps_of<Description>(model, training, mesh);
}

} // namespace

namespace {

template <class Zero> void expect_steps(const sw::HostCommunicator& world, Findings& findings) {
  const Steps alone = on_one_stage<FrozenBody<Zero>>(sw::HostCommunicator(world).split(world.rank(), 0));
  for (const auto& [name, before] : alone.before)
    findings.expect((alone.after.at(name) == before) == (name != "head.out"), name);
  const auto compare = [&](const Steps& steps, const char* what) {
    for (std::size_t i = 0; i < alone.losses.size(); ++i)
      findings.expect(std::abs(steps.losses[i] - alone.losses[i]) < 1e-12, what, ": loss ", i);
    for (const auto& [name, after] : steps.after)
      findings.expect(name == "head.out" || after == alone.after.at(name), what, ": ", name);
  };
  compare(on_one_stage<FrozenBody<Zero>>(world), "one stage");
  if (world.size() == 2)
    for (const char* policy : {"1f1b", "zbv", "dualpipev"})
      compare(on_two_stages<FrozenBody<Zero>>(world, policy), policy);
}

} // namespace

TEST_CASE("steps change trained weights and leave frozen ones as they are, on every mesh and pipeline") {
  for (const int ranks : {1, 2, 3, 4}) {
    CHECK(on_ranks(ranks, expect_steps<sw::DataParallel>) == "");
    CHECK(on_ranks(ranks, expect_steps<sw::Zero3>) == "");
  }
}

namespace {

template <template <class, class> class Kind> [[nodiscard]] sw::DryRun counted() {
  using Description = Kind<sw::DataParallel, sw::Counting<sw::DefaultTarget>>;
  return sw::dry_run(1, 0, [](const sw::HostCommunicator& world) {
    const auto mesh = small_mesh(world, 1);
    sw::SingleStageModel<Description> model(mesh, {}, 3);
    sw::GradAccumulator accumulator(model);
    accumulator.add(model.forward_backward(small_batch<Description>(mesh, 0, 0)));
  });
}

} // namespace

TEST_CASE("no gradient of a frozen weight is computed, and none below the lowest trained one") {
  // Products of 7 rows: of two matrices of 6 x 6, and in each of 3 layers of two of 6 x 10.
  const double ends = 2.0 * 7 * 36, layers = 2.0 * 7 * 3 * 2 * 60;
  const double forward = 2 * ends + layers;
  CHECK(counted<Trained>().flops == forward + (ends + layers) + forward); // none of the data
  CHECK(counted<FrozenBody>().flops == forward + ends);
  CHECK(counted<FrozenHead>().flops == forward + (ends + layers) + (ends + layers));
}

TEST_CASE("stages below the lowest trained parameter get no gradient, and do nothing in backward passes") {
  // Of four microbatches of 7 rows: products of matrices of 6 x 6 and 6 x 10, without the head's.
  const auto pass = [](double matrices, double in_layers) {
    return 4 * 2.0 * 7 * (36 * matrices + 60 * in_layers);
  };
  using Description = FrozenBody<sw::Zero3, sw::Counting<sw::DefaultTarget>>;
  for (const std::string policy : {"1f1b", "zbv", "dualpipev"}) {
    std::array<double, 2> flops{}; // of the ranks
    for (int rank = 0; rank < 2; ++rank) {
      const sw::DryRun run = sw::dry_run(2, rank, [&](const sw::HostCommunicator& world) {
        const auto mesh = small_mesh(sw::HostCommunicator(world).split_by(
                                         [](int each) {
                                           return sw::GroupPlace{each, 0};
                                         },
                                         "alone"),
                                     1);
        const auto schedule = sw::make_schedule(policy, 2, 4);
        sw::PipelineModel<Description> model(mesh, world, schedule.placement(),
                                             sw::LayerPartition(3, schedule.placement().stages()), {}, 3);
        sw::Training training(mesh, model, world, world, schedule, sw::AdamW(), {.check_inputs = false});
        std::vector<typename Description::Batch> batches;
        for (int number = 0; number < 4; ++number)
          batches.push_back(small_batch<Description>(mesh, 0, number));
        sw::count_anew();
        static_cast<void>(training.runner().run(batches));
      });
      flops[static_cast<std::size_t>(rank)] = run.flops;
      const std::ptrdiff_t messages =
          std::count_if(run.calls.begin(), run.calls.end(), [](const sw::RecordedCall& call) {
            return call.operation == sw::Operation::send || call.operation == sw::Operation::receive;
          });
      CHECK(messages == 4 * (policy == "1f1b" ? 1 : 2)); // activations only
    }
    CHECK(flops[0] + flops[1] == pass(2, 6) + pass(1, 0)); // one pass forward, and the head's gradient
  }
}

TEST_CASE("a backward pass gathers no weights below the lowest trained parameter") {
  const auto gathers = []<class Description>(Description*) {
    const sw::DryRun run = sw::dry_run(2, 0, [](const sw::HostCommunicator& world) {
      const auto mesh = small_mesh(world, 1);
      sw::SingleStageModel<Description> model(mesh, {}, 3);
      sw::GradAccumulator accumulator(model);
      accumulator.add(model.forward_backward(small_batch<Description>(mesh, 0, 0)));
    });
    return std::count_if(run.calls.begin(), run.calls.end(), [](const sw::RecordedCall& call) {
      return call.operation == sw::Operation::all_gather && call.started;
    });
  };
  using Target = sw::Counting<sw::DefaultTarget>;
  const auto forward = 1 + 3 * 2 + 1;
  CHECK(gathers(static_cast<FrozenBody<sw::Zero3, Target>*>(nullptr)) == forward);
  // What the backward pass reads first is kept: the head, and the last layer.
  CHECK(gathers(static_cast<FrozenHead<sw::Zero3, Target>*>(nullptr)) == forward + 2 * 2 + 1);
}

TEST_CASE("a dry run predicts the memory of a training with frozen parameters") {
  const auto program = []<class Description>(const sw::HostCommunicator& world, auto at_step, Description*) {
    using Target = typename Description::target;
    const auto mesh = small_mesh(world, 2);
    sw::SingleStageModel<Description> model(mesh, {}, 3);
    sw::Training training(mesh, model, sw::AdamW());
    std::vector<typename Description::Batch> batches{small_batch<Description>(mesh, 0, 0)};
    for (int step = 0; step < 2; ++step) {
      static_cast<void>(training.step(
          [&](std::int64_t) -> auto& { return batches; }, 0.01));
      at_step(step, mesh.template pool_statistics<Target>());
    }
  };
  constexpr int ranks = 4;
  std::array<sw::DryRun, ranks> predicted;
  using Counted = FrozenBody<sw::Zero3, sw::Counting<sw::DefaultTarget>>;
  for (int rank = 0; rank < ranks; ++rank) {
    predicted[static_cast<std::size_t>(rank)] =
        sw::dry_run(ranks, rank, [&](const sw::HostCommunicator& world) {
          program(
              world, [](int, const sw::PoolStatistics&) {}, static_cast<Counted*>(nullptr));
        });
    // Two moments of a share of the head of 6 x 6.
    CHECK(predicted[static_cast<std::size_t>(rank)].memory[sw::MemoryKind::optimizer_state] ==
          2 * 3 * 6 * static_cast<std::int64_t>(sizeof(double)));
  }
  CHECK(on_ranks(ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
          shardwright_test::expect_predicted(
              predicted[static_cast<std::size_t>(world.rank())], world,
              [&](const sw::HostCommunicator& all, auto at_step) {
                program(all, at_step, static_cast<FrozenBody<sw::Zero3>*>(nullptr));
              },
              "frozen body", findings);
        }) == "");
}

TEST_CASE("a model whose parameters are all frozen cannot be accumulated, and the error says so") {
  CHECK(
      on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
        const auto mesh = small_mesh(world, 1);
        sw::Linear<sw::Layout<2>, sw::Layout<2>, sw::ModelPlan<double, sw::Frozen<sw::DataParallel>>> product(
            mesh, {3, 4}, sw::Initial::normal(1));
        sw::initialize(product, 1, "product");
        const std::string said =
            failure_of<sw::LifecycleError>([&] { sw::GradAccumulator accumulator(product); });
        findings.expect(has(said, "the model must have a parameter that is trained"), said);
      }) == "");
}

TEST_CASE("the inputs of frozen modules get their gradients, norms included") {
  using Plan = sw::ModelPlan<double, sw::Frozen<sw::DataParallel>>;
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Heads = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const auto mesh = small_mesh(world, world.size() == 2 ? 2 : 1);
            sw::RmsNorm<Rows, Plan> rms(mesh, 6, 1e-5);
            sw::LayerNorm<Rows, Plan> layer(mesh, 6, 1e-5);
            const sw::HeadShape shape{2, 3, 3};
            sw::HeadNorm<Heads, Plan> heads(mesh, shape, 1e-5);
            sw::initialize(rms, 1, "rms");
            sw::initialize(layer, 1, "layer");
            sw::initialize(heads, 1, "heads");
            sw::ShardedTensor<Rows, double> x(mesh, {5, 6});
            sw::ShardedTensor<Heads, double> qkv(mesh, {2, 3, 2, 12});
            sw::fill_normal(x, {1, 2});
            sw::fill_normal(qkv, {1, 3});
            const auto check = [&](const char* what, auto function, auto inputs) {
              findings.expect(sw::check_gradients(function, inputs).error < 1e-6, what);
            };
            check(
                "rms", [&](auto v) { return rms(v); }, sw::members("x", x, "rms", rms));
            check(
                "layer", [&](auto v) { return layer(v); }, sw::members("x", x, "layer", layer));
            check(
                "sum", [&](auto v) { return rms(v + v) + v; }, sw::members("x", x, "rms", rms));
            check(
                "heads", [&](auto v) { return heads(v); }, sw::members("qkv", qkv, "heads", heads));
          }) == "");
}

TEST_CASE("a detached value has no gradient, whatever else reads its source, and however it is read") {
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Columns = sw::Layout<2, sw::Shard<1, dp>>;
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const auto mesh = small_mesh(world, 1);
            sw::ShardedTensor<Rows, double> x(mesh, {5, 6});
            sw::fill_normal(x, {1, 2});
            const auto ones = [&]<class L>(const sw::Var<L, double>& of) {
              sw::ShardedTensor<sw::Gradient<L>, double> out(of.resources(), of.shape());
              sw::fill(out, 1.0);
              return out;
            };
            const auto gradient_of = [&](auto function) {
              sw::Tape<> tape;
              const auto v = tape.variable(x);
              const auto y = function(v);
              tape.seed(y, ones(y));
              tape.backward();
              return sw::local_values(tape.gradient(v));
            };
            const auto all = [](const std::vector<double>& values, double wanted) {
              return std::all_of(values.begin(), values.end(), [&](double value) { return value == wanted; });
            };
            findings.expect(all(gradient_of([](auto v) { return sw::detach(v); }), 0), "alone");
            findings.expect(all(gradient_of([](auto v) { return sw::detach(v) + v; }), 1), "first");
            findings.expect(all(gradient_of([](auto v) { return v + sw::detach(v); }), 1), "last");
            findings.expect(all(gradient_of([](auto v) { return sw::detach(v.template as<Columns>()); }), 0),
                            "an edge");
            const auto product = gradient_of([](auto v) { return sw::multiply(sw::detach(v), v); });
            findings.expect(product == sw::local_values(x), "a factor");
            const auto again = gradient_of([](auto v) {
              return sw::recompute([](auto inner) {
                auto held = sw::detach(sw::tanh(inner));
                return sw::multiply(held, sw::tanh(inner));
              })(v);
            });
            const auto kept = gradient_of([](auto v) {
              auto held = sw::detach(sw::tanh(v));
              return sw::multiply(held, sw::tanh(v));
            });
            findings.expect(again == kept, "recomputed");
          }) == "");
}
