// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/experts/layer.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The planner's figures for layers with experts, which it computes only from their sizes, compared with the
// counts of a dry run of the same layers; and these compared with the run itself.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Approx;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Mesh = sw::DeviceMesh<dp, ep, tp>;
using Extents = std::array<int, 3>;

/// The stream is split over tp along the sequence, and each rank sends its tokens to the experts, which the
/// ranks of ep and tp own together; the MLP beside them is split over tp.
struct Where {
  using Residual = sw::Layout<3, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>;
  using Tokens = Residual;
  using Dense = sw::Layout<3, sw::Shard<0, dp, ep>>;
  using GateUp = sw::Layout<3, sw::Shard<2, tp>>;
  using Down = sw::Layout<2, sw::Shard<0, tp>>;
};

struct BesideExperts : Where {
  using Tokens = Where::Dense;
};

struct Sizes {
  std::int64_t width = 0, hidden = 0, shared = 0, experts = 0, chosen = 0;
  std::int64_t sequences = 0, positions = 0; // in all
  int layers = 0;
};

template <class Element, class Target> class Block {
  using Plan = sw::ModelPlan<Element, sw::DataParallel, Target>;
  struct Router : sw::Router<Where::Tokens, Plan> {
    using Base = sw::Router<Where::Tokens, Plan>;
    using Base::Base;
    template <class X> [[nodiscard]] auto operator()(X&& x, sw::SourceLocation where) {
      return Base::operator()(sw::as_var(std::forward<X>(x)), {}, where);
    }
  };
  using Experts = sw::ExpertMlp<Where::Tokens, sw::AxisList<ep, tp>, sw::AxisList<>, Plan>;

public:
  Block(const Mesh& mesh, const Sizes& sizes)
      : norm_(mesh, sizes.width, 1e-5),
        moe_(std::make_tuple(std::cref(mesh), sizes.width, sizes.experts,
                             sw::RouterOptions{.chosen = sizes.chosen, .scores = sw::RouterScores::sigmoid},
                             sw::Initial::normal(0.3)),
             std::make_tuple(std::cref(mesh),
                             sw::ExpertSizes{sizes.width, sizes.hidden, {sizes.experts, rows(mesh, sizes)}},
                             sw::Initial::normal(0.3), sw::Initial::normal(0.3)),
             std::make_tuple(std::cref(mesh), sizes.width, sizes.shared, sw::Initial::normal(0.3),
                             sw::Initial::normal(0.3))) {}

  template <class X> [[nodiscard]] X operator()(X x) { return x + moe_(norm_(x)); }
  [[nodiscard]] auto members() { return sw::members("norm", norm_, "moe", moe_); }

private:
  /// Rows that a rank receives if the load is even.
  [[nodiscard]] static std::int64_t rows(const Mesh& mesh, const Sizes& sizes) {
    return sizes.sequences * sizes.positions * sizes.chosen / mesh.world().size();
  }
  sw::RmsNorm<Where::Residual, Plan> norm_;
  sw::MoeLayer<Where, Router, Experts, sw::SwiGlu<BesideExperts, Plan>> moe_;
};

template <class Element, class Target> struct Layers {
  using target = Target;
  std::vector<std::unique_ptr<Block<Element, Target>>> blocks;

  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    for (auto& block : blocks)
      sw::for_each_parameter(*block, visit);
  }
};

constexpr int steps = 2;

/// Steps of training, or only a forward pass.
template <class Element, class Target, class AtStep>
void train(const sw::HostCommunicator& world, Extents extents, const Sizes& sizes, bool trains,
           const AtStep& at_step) {
  const Mesh mesh(world, sw::extent<dp>(extents[0]), sw::extent<ep>(extents[1]), sw::extent<tp>(extents[2]));
  Layers<Element, Target> model;
  for (int layer = 0; layer < sizes.layers; ++layer) {
    model.blocks.push_back(std::make_unique<Block<Element, Target>>(mesh, sizes));
    sw::initialize(*model.blocks.back(), 5, "layers." + std::to_string(layer));
  }
  sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer;
  for (int step = 0; step < (trains ? steps : 1); ++step) {
    sw::ShardedTensor<Where::Residual, Element, Target> x(mesh,
                                                          {sizes.sequences, sizes.positions, sizes.width});
    sw::fill_normal(x, {1, 2});
    sw::Tape<Target> tape;
    {
      auto y = tape.variable(std::move(x));
      for (auto& block : model.blocks)
        y = (*block)(std::move(y));
      tape.seed(y, y.value());
    }
    if (!trains)
      return;
    tape.backward();
    using Sums = sw::Layout<0, sw::Partial<sw::Sum, dp, ep>>;
    const bool first = mesh.coordinate<dp>() == 0 && mesh.coordinate<ep>() == 0;
    accumulator.add(sw::LossSum<Sums>{0}, sw::TokenCount<Sums>{first ? 1 : 0});
    optimizer.step(model, accumulator.finish(), 1e-3);
    accumulator.restart();
    at_step(step, mesh.core().template resources<Target>().statistics());
  }
}

/// Numbers of rank 0 for each layer: the difference of two depths, without the part that both have.
struct OfLayer {
  std::array<double, 8> bytes{};
  double flops = 0;
  double exchanged = 0; // bytes of all_to_all, including those that stay on the rank

  [[nodiscard]] double operator[](sw::MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
};
[[nodiscard]] OfLayer predicted(Extents extents, Sizes sizes, bool trains) {
  OfLayer out;
  for (const int layers : {4, 2}) {
    sizes.layers = layers;
    const double share = (layers == 4 ? 0.5 : -0.5);
    const sw::DryRun run =
        sw::dry_run(extents[0] * extents[1] * extents[2], 0, [&](const sw::HostCommunicator& world) {
          train<sw::bfloat16, sw::Counting<sw::DefaultTarget>>(world, extents, sizes, trains,
                                                               [](int, const sw::PoolStatistics&) {});
        });
    for (std::size_t kind = 0; kind < out.bytes.size(); ++kind)
      out.bytes[kind] += share * static_cast<double>(run.memory.bytes[kind]);
    out.flops += share * run.flops / steps;
    for (const sw::RecordedCall& call : run.calls)
      if (call.operation == sw::Operation::all_to_all)
        out.exchanged += share * static_cast<double>(call.bytes) / steps;
  }
  return out;
}

} // namespace

TEST_CASE("the planner's memory, operations and traffic of experts agree with the dry run") {
  for (const Extents extents : {Extents{2, 4, 1}, Extents{1, 8, 1}, Extents{2, 4, 2}}) {
    // DeepSeek-V2-Lite's layer (arXiv 2405.04434, appendix B).
    const sw::ModelSpec model{.layers = 1,
                              .hidden = 2048,
                              .head_width = 1,
                              .experts = {.count = 64, .active = 6, .width = 1408, .shared = 2}};
    const Sizes sizes{.width = model.hidden,
                      .hidden = model.experts.width,
                      .shared = model.shared_expert_width(),
                      .experts = model.experts.count,
                      .chosen = model.experts.active,
                      .sequences = extents[0] * extents[1],
                      .positions = 4096};
    Sizes few_tokens = sizes; // whose activations do not hide the moment with the most states
    few_tokens.positions = 64;
    const OfLayer states = predicted(extents, few_tokens, true), step = predicted(extents, sizes, true),
                  forward = predicted(extents, sizes, false);

    const int ranks = extents[0] * extents[1] * extents[2];
    const sw::RunSpec run{.sequences = sizes.sequences, .sequence_length = sizes.positions};
    const sw::PlanConfiguration plan{
        .tp = extents[2], .ep = extents[1] * extents[2], .dp = extents[0] * extents[1]};
    const sw::ModelSize size = sw::size_of(model);
    const sw::MemoryCost memory = sw::memory_cost(
        model, size, run, plan, 1, sw::detail::HeldParameters(model, size, plan), sw::HostKind::separate);
    CAPTURE(extents[0], extents[1], extents[2]);
    CHECK(states[sw::MemoryKind::parameters] == Approx(memory.parameters).epsilon(0.005));
    CHECK(states[sw::MemoryKind::gradients] == Approx(memory.gradients).epsilon(0.005));
    CHECK(states[sw::MemoryKind::optimizer_state] + states[sw::MemoryKind::master_weights] ==
          Approx(memory.optimizer).epsilon(0.005));
    // The planner's layer has attention, too; without heads, only the input and output of its norm are left.
    // It gathers the input of the MLP beside the experts again, which a tape keeps.
    const double stream = 2.0 * static_cast<double>(sizes.positions * sizes.width);
    const double attention = 2 * stream / extents[2], gathered = extents[2] > 1 ? stream : 0;
    CHECK(forward[sw::MemoryKind::activations] ==
          Approx(memory.activations - attention + gathered).epsilon(0.005));

    const double flops =
        static_cast<double>(run.tokens()) *
        sw::flops_per_token(model, size, static_cast<double>(sizes.positions), sw::FlopsConvention::causal);
    CHECK(step.flops * ranks == Approx(flops).epsilon(0.005));

    const sw::ClusterSpec cluster = sw::cluster_of(sw::chip::h100, ranks);
    const auto shared = sw::calibration_of(cluster.chip.generation).shared;
    const sw::PlanLinks links = sw::plan_links(cluster, plan, sw::copies_of(model, run), shared);
    const double bytes = sw::detail::layer_traffic(model, cluster, run, plan, links, shared).expert.bytes;
    const double elsewhere = (plan.ep - 1.0) / plan.ep;
    CHECK(step.exchanged * elsewhere == Approx(2 * bytes).epsilon(0.005)); // forward and backward
  }
}

TEST_CASE("memory and calls of a training with a router and experts agree with its dry run") {
  // Every token goes to all experts, so that the load is even whatever the router chooses.
  const Sizes sizes{.width = 8,
                    .hidden = 6,
                    .shared = 4,
                    .experts = 4,
                    .chosen = 4,
                    .sequences = 4,
                    .positions = 6,
                    .layers = 2};
  const Extents extents{1, 2, 2};
  CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DryRun dry = sw::dry_run(4, world.rank(), [&](const sw::HostCommunicator& pretended) {
            train<sw::bfloat16, sw::Counting<sw::DefaultTarget>>(pretended, extents, sizes, true,
                                                                 [](int, const sw::PoolStatistics&) {});
          });
          shardwright_test::expect_predicted(
              dry, world,
              [&](const sw::HostCommunicator& ranks, const auto& at_step) {
                train<sw::bfloat16, sw::DefaultTarget>(ranks, extents, sizes, true, at_step);
              },
              "training", findings);
        }) == "");
}
