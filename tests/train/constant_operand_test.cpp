// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/transpose.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape.hpp>

#include <string>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;

/// Products and sums with tensors, which need no other header than that of the tape.
struct WithConstants {
  sw::ShardedTensor<Column, double> up;
  sw::ShardedTensor<Row, double> down;
  sw::ShardedTensor<sw::Layout<2>, double> left;
  sw::ShardedTensor<Rows, double> mask;
  auto operator()(sw::Var<Rows, double> x) const {
    auto hidden = sw::matmul(x * mask, up);
    auto y = sw::matmul(std::move(hidden), down).as<Rows>();
    auto turned = sw::matmul(left, x.as<sw::Layout<2>>()).as<Rows>();
    return std::move(y) + turned - mask;
  }
};

/// A product on a tape and its gradients are, bit by bit, ordered products of blocks.
template <bool transposed> void check_ordered(const Mesh& mesh, Findings& findings) {
  using Whole = sw::Layout<2>;
  const auto turned = [](const auto& tensor) { return sw::transpose<0, 1>(tensor); };
  const auto x = random_tensor<Whole>(mesh, {130, 270}, 1);
  const auto w = random_tensor<Whole>(mesh, {270, 41}, 2);
  const auto g = random_tensor<Whole>(mesh, {130, 41}, 3);
  sw::Tape<> tape;
  const auto left = tape.variable(x);
  const auto right = tape.variable(transposed ? turned(w) : w.clone());
  const auto y = [&] {
    if constexpr (transposed)
      return sw::matmul_transposed<sw::OrderedProducts>(left, right);
    else
      return sw::matmul<sw::OrderedProducts>(left, right);
  }();
  tape.seed(y, g.clone());
  const auto same = [&](const auto& found, const auto& a, const auto& b, const char* what) {
    const auto blocks =
        sw::matmul<sw::OrderedProducts>(sw::redistribute<Rows>(a), sw::redistribute<Column>(b));
    findings.expect(whole_of(found) == whole_of(blocks), what, transposed ? " of W'" : " of W");
  };
  same(y.value(), x, w, "y");
  tape.backward();
  same(tape.gradient(left), g, turned(w), "dX");
  if constexpr (transposed)
    same(tape.gradient(right), turned(g), x, "dW");
  else
    same(tape.gradient(right), turned(x), g, "dW");
}

} // namespace

TEST_CASE("a tensor is a constant operand of products and sums on a tape") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const WithConstants constants{
                random_tensor<Column>(mesh, {6, 5}, 1), random_tensor<Row>(mesh, {5, 6}, 2),
                random_tensor<sw::Layout<2>>(mesh, {4, 4}, 3), random_tensor<Rows>(mesh, {4, 6}, 4)};
            const auto x = random_tensor<Rows>(mesh, {4, 6}, 5);
            const auto worst = sw::check_gradients([&](auto v) { return constants(std::move(v)); },
                                                   sw::members("x", x), {.directions = 1, .elements = 3});
            findings.expect(worst.error < 1e-7, worst.input, " is off by ", worst.error);
            sw::Tape<> tape(sw::Recording::evaluation);
            const Vector found = whole_of(constants(tape.input(x)).value());
            const auto plain =
                sw::redistribute<Rows>(
                    sw::matmul(sw::matmul(x * constants.mask, constants.up), constants.down)) +
                sw::redistribute<Rows>(sw::matmul(constants.left, sw::redistribute<sw::Layout<2>>(x))) -
                constants.mask;
            findings.expect(difference(found, whole_of(plain)) < 1e-14, "the value");
          }) == "");
}

TEST_CASE("ordered products on a tape have the bits of ordered products of blocks") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            check_ordered<false>(mesh, findings);
            check_ordered<true>(mesh, findings);
          }) == "");
}
