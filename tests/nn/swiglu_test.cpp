// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr std::size_t hidden = 7;

/// silu(gate) * value for [tokens, 2, hidden].
Vector plain_swiglu(const Vector& x) {
  Vector out;
  for (std::size_t token = 0; token < x.size(); token += 2 * hidden)
    for (std::size_t h = 0; h < hidden; ++h)
      out.push_back(x[token + h] / (1 + std::exp(-x[token + h])) * x[token + hidden + h]);
  return out;
}

using GateUp = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<3, tp>>;
using Out = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<2, tp>>;
static_assert(std::is_same_v<sw::SwigluLayout<GateUp>, Out>);

} // namespace

TEST_CASE("swiglu and its gradient equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const auto x = random_tensor<GateUp>(mesh, {3, 2, 2, hidden}, 1);
            const auto upstream = random_tensor<Out>(mesh, {3, 2, hidden}, 2);
            const Vector xs = whole_of(x), weights = whole_of(upstream);
            const double value = difference(whole_of(sw::swiglu(x)), plain_swiglu(xs));
            findings.expect(value <= 1e-14, "value differs by ", value);
            const Vector gradient =
                finite_differences([&](const Vector& at) { return dot(plain_swiglu(at), weights); }, xs);
            sw::Tape<> tape;
            const auto input = tape.variable(x);
            tape.seed(sw::swiglu(input), upstream.share());
            tape.backward();
            const double apart = difference(whole_of(tape.gradient(input)), gradient);
            findings.expect(apart <= 1e-8, "gradient differs by ", apart);
            findings.expect(whole_of(x) == xs, "the input is written over");
          }) == "");
}

TEST_CASE("swiglu names a shape without gate and value") {
  CHECK(
      on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
        const Mesh mesh = mesh_of(world, {});
        const auto x = random_tensor<GateUp>(mesh, {3, 2, 3, hidden}, 1);
        try {
          static_cast<void>(sw::swiglu(x));
          findings.expect(false, "no error");
        } catch (const sw::InvalidArgument& error) {
          const std::string text = error.what();
          findings.expect(
              text.find(
                  "swiglu: the second-to-last extent must be 2, gate and value, but the shape is [3, 2, 3, 7]") !=
                  std::string::npos,
              text);
        }
      }) == "");
}
