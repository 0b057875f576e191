// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/checks/mesh_hash.hpp>
#include <shardwright/train/grad_accumulator.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

// A layer of experts with its router and losses, on a Reproducible target.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Ordered = sw::Reproducible<sw::DefaultTarget>;
using Ids = sw::Layout<2, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>;
using Tokens = sw::Layout<3, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>;
using OverTokens = sw::Layout<0, sw::Partial<sw::Sum, dp, ep, tp>>;
using Mesh = sw::DeviceMesh<dp, ep, tp>;
constexpr std::int64_t batch = 4, sequence = 64, words = 20, experts = 8;

template <class Element> struct Model {
  using Plan = sw::ModelPlan<Element, sw::DataParallel, Ordered>;
  using target = Ordered;

  explicit Model(const Mesh& mesh)
      : table(mesh, words, words, sw::Initial::normal(1)), norm(mesh, words, 1e-5),
        router(mesh, words, experts, {.chosen = 3}, sw::Initial::normal(1), {.rate = 0.01}),
        mlp(mesh, {words, 24, {experts, 3 * batch * sequence}}, sw::Initial::normal(0.3),
            sw::Initial::normal(0.3)) {}
  [[nodiscard]] auto members() {
    return sw::members("table", table, "norm", norm, "router", router, "mlp", mlp);
  }
  auto operator()(sw::Tape<Ordered>& tape, const sw::ShardedTensor<Ids, std::int32_t, Ordered>& ids) {
    const auto x = sw::as_var(table(tape, ids).template as<Tokens>());
    auto routed = router(norm(x));
    auto loss = sw::balance_loss<sw::EachSequence>(routed.logits, routed.experts, {.coefficient = 0.1});
    loss += sw::router_z_loss(routed.logits, routed.experts, 0.01);
    auto y = mlp(norm(x), routed.experts, std::move(routed.gates));
    loss += sw::cross_entropy(x + std::move(y), ids);
    return loss;
  }

  sw::Embedding<Ids, sw::Layout<2>, Plan> table;
  sw::RmsNorm<Tokens, Plan> norm;
  sw::Router<Tokens, Plan> router;
  sw::ExpertMlp<Tokens, sw::AxisList<ep, tp>, sw::AxisList<>, Plan> mlp;
};

/// Bits of the loss and the norm of one step, and hashes of the gradients.
template <class Element>
std::vector<std::uint64_t> bits_of_step(sw::HostCommunicator world, const std::array<int, 3>& extents,
                                        std::int64_t microbatches) {
  const Mesh mesh{world, sw::extent<dp>(extents[0]), sw::extent<ep>(extents[1]), sw::extent<tp>(extents[2])};
  Model<Element> model(mesh);
  sw::GradAccumulator accumulator(model, world);
  sw::initialize(model, 3);
  const std::int64_t sequences = batch / microbatches;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    sw::ShardedTensor<Ids, std::int32_t, Ordered> ids(mesh, {sequences, sequence});
    const auto offset = ids.local_offset(), local = ids.local_shape();
    for (std::int64_t i = 0; i < local[0] * local[1]; ++i) {
      const std::int64_t token =
          (m * sequences + offset[0] + i / local[1]) * sequence + offset[1] + i % local[1];
      ids.mutable_data()[i] = static_cast<std::int32_t>(
          sw::random_words({5, 6}, static_cast<std::uint64_t>(token)).word[0] % words);
    }
    sw::Tape<Ordered> tape;
    const auto loss = model(tape, ids);
    tape.backward();
    accumulator.add(loss);
  }
  const sw::GradientSummary summary = accumulator.finish();
  std::vector<std::uint64_t> out;
  sw::for_each_parameter(
      model, [&](const auto& parameter) { out.push_back(sw::mesh_hash_part(parameter.gradient())); });
  world.all_reduce_in_place(std::span<std::uint64_t>(out));
  out.push_back(std::bit_cast<std::uint64_t>(summary.loss.value));
  out.push_back(std::bit_cast<std::uint64_t>(summary.gradient_norm));
  return out;
}

struct Cut {
  std::array<int, 3> extents; // dp, ep, tp
  std::int64_t microbatches = 1;
};

template <class Element> void check(const std::vector<Cut>& cuts) {
  std::vector<std::uint64_t> one;
  for (const Cut& cut : cuts) {
    INFO("dp " << cut.extents[0] << " ep " << cut.extents[1] << " tp " << cut.extents[2] << ", "
               << cut.microbatches << " microbatches");
    std::vector<std::uint64_t> bits;
    CHECK(on_ranks(cut.extents[0] * cut.extents[1] * cut.extents[2],
                   [&](sw::HostCommunicator world, Findings& findings) {
                     const auto own = bits_of_step<Element>(world, cut.extents, cut.microbatches);
                     findings.expect(std::isfinite(std::bit_cast<double>(own.back())), "a norm");
                     if (world.rank() == 0)
                       bits = own;
                   }) == "");
    if (one.empty())
      one = bits;
    CHECK(bits == one);
  }
}

} // namespace

TEST_CASE("a layer of experts gives the same bits however ranks own them and share tokens",
          "[reproducible]") {
  check<float>(
      {{{1, 1, 1}}, {{1, 2, 1}}, {{1, 4, 1}}, {{2, 1, 1}, 2}, {{1, 2, 2}}, {{2, 2, 1}}, {{1, 1, 1}, 4}});
  check<sw::bfloat16>({{{1, 1, 1}}, {{1, 2, 2}, 2}, {{2, 1, 1}}});
}
