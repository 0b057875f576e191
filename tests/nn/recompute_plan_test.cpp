// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/spec/recompute_names.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The memory that the planner says a layer keeps if a plan lists the operations that run again, compared with
// a dry run's count for a layer that runs exactly these again.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Approx;
using sw::LayerOperation;

using Mesh = sw::DeviceMesh<dp>;

struct Where {
  using Residual = sw::Layout<3, sw::Shard<0, dp>>;
  using Tokens = Residual;
  using AttentionInput = sw::Layout<4, sw::Shard<0, dp>>;
  using Qkv = sw::Layout<3>;
  using Output = sw::Layout<2>;
};

constexpr std::int64_t sequences = 2, positions = 1024;

/// Norm, attention, norm, gated feed-forward.
template <class Element, class Target> class Block {
  using Plan = sw::ModelPlan<Element, sw::DataParallel, Target>;
  using Norm = sw::RmsNorm<Where::Residual, Plan>;
  using Up = sw::Linear<Where::Tokens, sw::Layout<3>, Plan>;
  using Hidden = sw::SwigluLayout<sw::MatmulLayout<Where::Tokens, sw::Layout<3>>>;
  using Down = sw::Linear<Hidden, sw::Layout<2>, Plan>;

public:
  Block(const Mesh& mesh, const sw::ModelSpec& model, const sw::RecomputedOperations& again)
      : again_(again), attention_norm_(mesh, model.hidden, 1e-5), mlp_norm_(mesh, model.hidden, 1e-5),
        attention_(mesh, {model.hidden, model.heads, model.key_value_heads, model.width_per_head()},
                   sw::Initial::normal(0.1), sw::Initial::normal(0.1), nullptr,
                   kind(LayerOperation::attention)),
        up_(mesh, {model.hidden, 2, model.feed_forward}, sw::Initial::normal(0.1)),
        down_(mesh, {model.feed_forward, model.hidden}, sw::Initial::normal(0.1)) {}

  template <class X> [[nodiscard]] X operator()(X x) {
    const sw::TokenPositions<sw::NaturalOrder> all(positions, 1, 0);
    const auto normed = [&](Norm& norm, const X& stream) {
      return sw::recompute([&](const X& read) { return norm(read); }, kind(LayerOperation::norm))(stream);
    };
    X attended = x + attention_(normed(attention_norm_, x), all);
    const auto activate = sw::recompute([](auto read) { return sw::swiglu(std::move(read)); },
                                        kind(LayerOperation::activation));
    const auto feed_forward = [&](auto read) {
      auto gated = activate;
      return down_(gated(up_(std::move(read))));
    };
    auto mlp = sw::recompute(feed_forward, again_.has(LayerOperation::feed_forward) ? sw::Recompute::full
                                                                                    : sw::Recompute::none);
    return attended + mlp(normed(mlp_norm_, attended));
  }

  [[nodiscard]] auto members() {
    return sw::members("attention_norm", attention_norm_, "mlp_norm", mlp_norm_, "attention", attention_,
                       "up", up_, "down", down_);
  }

private:
  [[nodiscard]] sw::Recompute kind(LayerOperation operation) const {
    return again_.has(operation) ? sw::Recompute::selective : sw::Recompute::none;
  }
  sw::RecomputedOperations again_;
  Norm attention_norm_, mlp_norm_;
  sw::Attention<Where, Plan> attention_;
  Up up_;
  Down down_;
};

/// Bytes that a layer keeps on rank 0 of two: the difference of two depths.
[[nodiscard]] double kept_by_layer(const sw::ModelSpec& model, const sw::RecomputedOperations& again) {
  using Target = sw::Counting<sw::DefaultTarget>;
  double bytes = 0;
  for (const int layers : {4, 2}) {
    const sw::DryRun run = sw::dry_run(2, 0, [&](const sw::HostCommunicator& world) {
      const Mesh mesh(world, sw::extent<dp>(2));
      std::vector<std::unique_ptr<Block<sw::bfloat16, Target>>> blocks;
      for (int layer = 0; layer < layers; ++layer) {
        blocks.push_back(std::make_unique<Block<sw::bfloat16, Target>>(mesh, model, again));
        sw::initialize(*blocks.back(), 5, "layers." + std::to_string(layer));
      }
      sw::ShardedTensor<Where::Residual, sw::bfloat16, Target> x(mesh,
                                                                 {2 * sequences, positions, model.hidden});
      sw::fill_normal(x, {1, 2});
      sw::Tape<Target> tape;
      auto y = tape.variable(std::move(x));
      for (auto& block : blocks)
        y = (*block)(std::move(y));
    });
    const auto kind = static_cast<std::size_t>(sw::MemoryKind::activations);
    bytes += (layers == 4 ? 0.5 : -0.5) * static_cast<double>(run.memory.bytes[kind]);
  }
  return bytes;
}

} // namespace

TEST_CASE("layers keep the memory that the planner says, whichever operations are recomputed") {
  const sw::ModelSpec model{
      .layers = 1, .hidden = 1024, .heads = 16, .key_value_heads = 4, .feed_forward = 2816, .vocabulary = 1};
  const sw::RunSpec run{.sequences = 2 * sequences, .sequence_length = positions};
  for (const char* list :
       {"", "norm", "act", "norm,act", "attention", "mlp", "norm,attention,act", "norm,mlp"}) {
    sw::PlanConfiguration plan{.dp = 2, .microbatch = static_cast<int>(sequences)};
    if (const auto again = sw::find_operations(list)) {
      plan.recomputation = sw::Recompute::selective;
      plan.recomputed = *again;
    }
    CAPTURE(list);
    CHECK(kept_by_layer(model, plan.recomputed) ==
          Approx(sw::activation_bytes_per_layer(model, run, plan)).epsilon(0.02));
  }
}
