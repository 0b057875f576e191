// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/tape/recompute.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using nn_test::Vector;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Mesh = sw::DeviceMesh<dp, tp>;
using Tokens = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>; // [sequences, positions, width]
using Stream = sw::Var<Tokens, double>;
using Plan = sw::ModelPlan<double>;

constexpr std::int64_t width = 2;
constexpr std::int64_t positions = 4;
constexpr std::int64_t experts = 6;
constexpr std::int64_t chosen = width; // so that the stream can be multiplied with the gates
constexpr int microbatches = 4;

struct Config {
  std::int64_t layers = 2;
};
struct Batch {
  sw::ShardedTensor<Tokens, double> x, target;
  std::optional<sw::BatchOrigin> origin{};
};

struct First {
  First(const auto& place, const Config&) : weight_(place.mesh, {width, width}, sw::Initial::normal(0.5)) {}
  static constexpr std::string_view name = "first";
  auto operator()(sw::Tape<>& tape, const Batch& batch) { return weight_(tape.input(batch.x)); }
  auto members() { return sw::members("weight", weight_); }

private:
  sw::Linear<Tokens, sw::Layout<2>, Plan> weight_;
};

//! [layer]
/// x + x times its gates: the results of experts are left out.
struct Layer {
  Layer(const auto& place, const Config&)
      : router_(place.mesh, width, experts, {.chosen = chosen, .scores = sw::RouterScores::sigmoid},
                sw::Initial::normal(0.5), {.rate = 0.01}),
        balance_(place.mesh, experts, {0.5, sw::RouterScores::sigmoid}) {}
  Stream operator()(Stream x) {
    auto routed = router_(sw::dropout(x, {1, 2, 0.25}));
    balance_(routed.logits, sw::choose_experts(routed.logits.value(), {.chosen = chosen}));
    return x + x * routed.gates;
  }
  auto members() { return sw::members("router", router_, "balance", balance_); }
  auto& load() { return router_.load(); }
  auto& balance() { return balance_; }

private:
  sw::Router<Tokens, Plan> router_;
  sw::GlobalBalance<Tokens> balance_;
};
//! [layer]

struct Last {
  Last(const auto&, const Config&) {}
  static constexpr std::string_view name = "last";
  auto operator()(Stream x, const Batch& batch) { return sw::mse(std::move(x), batch.target); }
  auto members() { return sw::members(); }
};

struct Model {
  using Config = ::Config;
  using Batch = ::Batch;
  using target = sw::DefaultTarget;
  using element = double;
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;
  static std::array<std::int64_t, 3> boundary(const Config&, const Batch& batch) { return batch.x.shape(); }
};
static_assert(sw::WholeBatchLoss<sw::Stage<Model>::Loss>);

std::vector<Batch> batches_on(const Mesh& mesh, int count) {
  std::vector<Batch> out;
  const std::int64_t sequences = microbatches * 2 / count;
  for (int i = 0; i < count; ++i) {
    Batch batch{
        {mesh, {sequences, positions, width}},
        {mesh, {sequences, positions, width}},
        sw::BatchOrigin{3, static_cast<std::uint64_t>(i * sequences), static_cast<std::uint64_t>(sequences)}};
    for (auto* const tensor : {&batch.x, &batch.target}) {
      sw::ShardedTensor<Tokens, double> all(mesh, {microbatches * 2, positions, width});
      sw::fill_normal(all, {7, tensor == &batch.x ? 1u : 2u});
      const auto whole = sw::redistribute<sw::Layout<3>>(all);
      const auto offset = tensor->local_offset();
      const auto local = tensor->local_shape();
      for (std::int64_t n = 0; n < static_cast<std::int64_t>(tensor->local_size()); ++n) {
        const std::int64_t row = n / width;
        const std::int64_t token =
            (i * sequences + offset[0] + row / local[1]) * positions + offset[1] + row % local[1];
        tensor->mutable_data()[n] = whole.data()[token * width + n % width];
      }
    }
    out.push_back(std::move(batch));
  }
  return out;
}

/// The state of this rank's layers after a run: the weights of their routers, then for each its bias and the
/// counts of the last step.
template <class AnyModel> std::vector<Vector> layers_of(AnyModel& model) {
  std::vector<Vector> out;
  model.for_each_stage([&](auto& stage) {
    stage.for_each_parameter([&](auto& parameter) {
      if (parameter.name().find("router") != std::string::npos)
        out.push_back(nn_test::whole_of(parameter.stored()));
    });
    for (const auto& unit : stage.parts())
      for (const auto& each : unit)
        if (auto* const load = dynamic_cast<sw::ExpertLoad<Tokens>*>(each.part)) {
          const auto bias = load->bias();
          out.emplace_back(bias.data(), bias.data() + bias.size());
          const auto counts = load->last_step().experts();
          out.emplace_back(counts.begin(), counts.end());
        }
  });
  return out;
}
constexpr int steps = 3;
template <class Training> void train(Training& training, const std::vector<Batch>& batches) {
  for (int i = 0; i < steps; ++i)
    static_cast<void>(training.step([&](std::int64_t) { return std::span<const Batch>(batches); }, 0.1));
}

std::vector<Vector> whole_run(int dp_ranks, int tp_ranks, int count) {
  std::vector<Vector> out;
  const std::string failed =
      on_ranks(dp_ranks * tp_ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh(world, sw::extent<dp>(dp_ranks), sw::extent<tp>(tp_ranks));
        const auto batches = batches_on(mesh, count);
        sw::SingleStageModel<Model> model(mesh, {}, 5);
        sw::Training training(mesh, model);
        train(training, batches);
        static_cast<void>(training.evaluate(std::span<const Batch>(batches))); // counts nothing
        auto layers = layers_of(model);
        findings.expect(layers.size() == 6, "layers ", layers.size());
        if (world.rank() == 0)
          out = std::move(layers);
      });
  if (!failed.empty())
    throw std::runtime_error(failed);
  return out;
}
double distance(const std::vector<Vector>& a, const std::vector<Vector>& b) {
  double out = a.size() == b.size() && !a.empty() ? 0 : 1;
  for (std::size_t i = 0; out < 1 && i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      out = std::max(out, std::abs(a[i][j] - b[i][j]));
  return out;
}

} // namespace

TEST_CASE(
    "a router with an exact global balance trains alike on every mesh and in any number of microbatches") {
  const auto one = whole_run(1, 1, 1);
  double counted = 0;
  for (const double tokens : one[3])
    counted += tokens;
  CHECK(counted ==
        chosen * 2 * microbatches * positions); // once each: not in counting passes, nor in evaluations
  CHECK(*std::max_element(one[2].begin(), one[2].end()) > 0.009);
  CHECK(distance(whole_run(1, 1, microbatches), one) < 1e-12);
  CHECK(distance(whole_run(2, 1, 2), one) < 1e-12);
  CHECK(distance(whole_run(2, 2, microbatches), one) < 1e-12);
}

TEST_CASE(
    "a pipeline knows the counts of the batch before its first backward, under GPipe or with CountingFirst") {
  const auto one = whole_run(1, 1, 1);
  for (const bool counting : {false, true}) {
    INFO((counting ? "1F1B, counting first" : "GPipe"));
    CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
            const int stage = world.rank() / 2;
            const Mesh mesh(world.split(stage, world.rank()), sw::extent<dp>(1), sw::extent<tp>(2));
            const auto pipeline = world.split(world.rank() % 2, world.rank());
            const auto batches = batches_on(mesh, microbatches);
            const auto run = [&](const auto& schedule) {
              sw::PipelineModel<Model> model(mesh, pipeline, schedule.placement(), sw::LayerPartition(2, 2),
                                             {}, 5);
              sw::Training training(mesh, model, world, pipeline, schedule);
              train(training, batches);
              const auto place = static_cast<std::size_t>(stage);
              findings.expect(
                  distance(layers_of(model), {one[place], one[2 + 2 * place], one[3 + 2 * place]}) < 1e-12,
                  "stage ", stage);
            };
            //! [schedules]
            if (counting)
              run(sw::CountingFirst(sw::make_schedule<sw::OneFOneB>(2, microbatches)));
            else
              run(sw::make_schedule<sw::GPipe>(2, microbatches));
            //! [schedules]
          }) == "");
  }
}

namespace {

/// Layers that are frozen and recomputed, below a matrix that is trained.
struct FrozenModel {
  using Config = ::Config;
  using Batch = ::Batch;
  using target = sw::DefaultTarget;
  using element = double;
  struct First {
    First(const auto&, const Config&) {}
    static constexpr std::string_view name = "first";
    auto operator()(sw::Tape<>& tape, const Batch& batch) { return tape.input(batch.x); }
    auto members() { return sw::members(); }
  };
  struct Layer {
    Layer(const auto& place, const Config&)
        : router_(place.mesh, width, experts, {.chosen = chosen}, sw::Initial::normal(0.5)),
          balance_(place.mesh, experts) {}
    Stream operator()(Stream input) {
      return sw::recompute([this](auto x) {
        auto routed = router_(x);
        balance_(routed.logits, routed.experts);
        return x + x * routed.gates;
      })(std::move(input));
    }
    auto members() { return sw::members("router", router_, "balance", balance_); }

  private:
    sw::Router<Tokens, sw::ModelPlan<double, sw::Frozen<sw::Zero3>>> router_;
    sw::GlobalBalance<Tokens> balance_;
  };
  struct Last {
    Last(const auto& place, const Config&) : weight_(place.mesh, {width, width}, sw::Initial::normal(0.5)) {}
    static constexpr std::string_view name = "last";
    auto operator()(Stream x, const Batch& batch) { return sw::mse(weight_(std::move(x)), batch.target); }
    auto members() { return sw::members("weight", weight_); }

  private:
    sw::Linear<Tokens, sw::Layout<2>, Plan> weight_;
  };
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;
  static std::array<std::int64_t, 3> boundary(const Config&, const Batch& batch) { return batch.x.shape(); }
};

/// The balance losses of the last steps on this rank; 0 if it has none.
template <class AnyModel> double balance_of(AnyModel& model) {
  double out = 0;
  model.for_each_stage([&](auto& stage) {
    stage.for_each_part([&](const auto& each) {
      if (auto* const balance = dynamic_cast<sw::GlobalBalance<Tokens>*>(each.part))
        out += balance->take_loss().loss.value;
    });
  });
  return out;
}

} // namespace

TEST_CASE("a stage below the lowest trained parameter computes its global balance in every step") {
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          const auto run = [&](const sw::HostCommunicator& pipeline) {
            const int stages = pipeline.size();
            const Mesh mesh(world.split(world.rank() / (4 / stages), world.rank()),
                            sw::extent<dp>(4 / stages), sw::extent<tp>(1));
            const auto schedule = sw::CountingFirst(sw::make_schedule<sw::OneFOneB>(stages, microbatches));
            sw::PipelineModel<FrozenModel> model(mesh, pipeline, schedule.placement(),
                                                 sw::LayerPartition(2, stages), {}, 5);
            sw::Training training(mesh, model, world, pipeline, schedule);
            train(training, batches_on(mesh, microbatches));
            std::array<double, 1> sum{balance_of(model)};
            world.all_reduce_in_place(std::span(sum));
            return sum[0];
          };
          const double one = run(world.split(world.rank(), 0)),
                       two = run(world.split(world.rank() % 2, world.rank()));
          findings.expect(one > 0 && std::abs(two - one) < 1e-12 * one, one, " and ", two);
        }) == "");
}

TEST_CASE("a global balance rejects schedules that hold each stage twice") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh(world, sw::extent<dp>(1), sw::extent<tp>(1));
          sw::GlobalBalance<Tokens> balance(mesh, experts);
          const std::string said =
              shardwright_test::failure_of<sw::InvalidArgument>([&] { balance.set_copies(world); });
          findings.expect(said.find("but this schedule holds each stage twice") != std::string::npos, said);
        }) == "");
}

TEST_CASE("a router of a 16-bit model multiplies, chooses and keeps its weights in float") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh(world, sw::extent<dp>(1), sw::extent<tp>(2));
          sw::Router<Tokens, sw::ModelPlan<sw::bfloat16>> router(mesh, width, experts, {.chosen = chosen},
                                                                 sw::Initial::normal(0.5));
          sw::initialize(router, 3, "router");
          sw::ShardedTensor<Tokens> numbers(mesh, {2, positions, width});
          sw::fill_normal(numbers, {1, 2});
          const auto x = sw::convert<sw::bfloat16>(numbers);
          sw::Tape<> tape(sw::Recording::evaluation);
          const auto routed = router(tape.input(x));
          static_assert(std::is_same_v<decltype(routed.gates)::element, float>);
          const Vector rows = nn_test::whole_of(sw::convert<double>(x));
          const Vector weights = nn_test::whole_of(sw::convert<double>(router.weight().stored()));
          const Vector logits = nn_test::whole_of(sw::convert<double>(routed.logits.value()));
          for (std::size_t i = 0; i < logits.size(); ++i) {
            double wanted = 0;
            for (std::size_t k = 0; k < width; ++k)
              wanted += rows[i / experts * width + k] * weights[k * experts + i % experts];
            findings.expect(std::abs(logits[i] - wanted) < 1e-6, logits[i], " for ", wanted);
          }
          findings.expect(!router.load().last_step().known(), "an evaluation is counted");
        }) == "");
}
