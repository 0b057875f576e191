// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/transpose.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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

/// rows of A x columns of B, of whole matrices in memory.
Vector plain_product(const Vector& a, const Vector& b, std::size_t rows, std::size_t columns) {
  const std::size_t contracted = a.size() / rows;
  Vector out(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t l = 0; l < contracted; ++l)
      for (std::size_t j = 0; j < columns; ++j)
        out[i * columns + j] += a[i * contracted + l] * b[l * columns + j];
  return out;
}

/// A product over a grid on a tape, and its gradients, also where they are added to a parameter's sum.
template <class Result, class GridMesh> void check_grid(const GridMesh& mesh, Findings& findings) {
  using Grid = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  const auto x = random_tensor<Grid>(mesh, {7, 5}, 1);
  const auto w = random_tensor<Grid>(mesh, {5, 2}, 2); // some blocks are empty
  const auto g = random_tensor<Grid>(mesh, {7, 2}, 3);
  sw::Tape<> tape;
  const auto left = tape.variable(x), right = tape.variable(w);
  const auto y = sw::matmul<Result>(left, right);
  tape.seed(y, g.clone());
  const auto same = [&](const auto& found, const Vector& wanted, const char* what) {
    findings.expect(difference(whole_of(found), wanted) < 1e-14, what);
  };
  same(y.value(), plain_product(whole_of(x), whole_of(w), 7, 2), "y");
  tape.backward();
  const Vector xt = whole_of(sw::transpose<0, 1>(x)), wt = whole_of(sw::transpose<0, 1>(w));
  same(tape.gradient(left), plain_product(whole_of(g), wt, 7, 5), "dX");
  Vector dw = plain_product(xt, whole_of(g), 5, 2);
  same(tape.gradient(right), dw, "dW");
  sw::ShardedTensor<Result, double> sum(mesh, {5, 2});
  struct Slot {
    decltype(sum)& tensor;
    float beta;
  };
  for (const float beta : {0.0F, 1.0F})
    sw::operation::MatrixProduct<false, sw::FastProducts, Result>{}.right_gradient_into(Slot{sum, beta}, g,
                                                                                        x);
  for (double& element : dw)
    element *= 2;
  same(sum, dw, "dW twice");
  if constexpr (std::is_same_v<Result, Grid>) {
    const auto v = random_tensor<Grid>(mesh, {2, 5}, 4);
    sw::Tape<> of_transposed;
    const auto first = of_transposed.variable(x), second = of_transposed.variable(v);
    const auto z = sw::matmul_transposed(first, second);
    of_transposed.seed(z, g.clone());
    same(z.value(), plain_product(whole_of(x), whole_of(sw::transpose<0, 1>(v)), 7, 2), "y of transposed");
    of_transposed.backward();
    same(of_transposed.gradient(first), plain_product(whole_of(g), whole_of(v), 7, 5), "dX of transposed");
    const Vector gt = whole_of(sw::transpose<0, 1>(g));
    same(of_transposed.gradient(second), plain_product(gt, whole_of(x), 2, 5), "dW of transposed");
  }
}

using Reproducible = sw::Reproducible<sw::DefaultTarget>;

/// The bits of all elements of a tensor on every rank, once ranks have added their parts.
template <class Tensor> void append_bits(std::vector<std::uint64_t>& bits, const Tensor& tensor) {
  const auto all = sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor);
  for (std::size_t i = 0; i < all.local_size(); ++i)
    std::memcpy(&bits.emplace_back(), all.data() + i, sizeof(*all.data()));
}

/// Products of layers and their gradients: row-parallel, of gate and up, and of tokens that several axes
/// share.
template <class Element> std::vector<std::uint64_t> reproducible_products(const Mesh& mesh) {
  using namespace sw; // Layout, Shard, Partial
  const auto random = [&mesh]<class L>(L, const typename ShardedTensor<L>::Shape& shape,
                                       std::uint64_t number) {
    ShardedTensor<L, float, Reproducible> out(mesh, {shape});
    fill_normal(out, {11, number});
    return convert<Element>(std::move(out));
  };
  constexpr std::int64_t batch = 4, tokens = 32, width = 48;
  using Tokens = Layout<3, Shard<0, dp>>;
  using Stream = Layout<3, Shard<0, dp>, Shard<1, tp>>;
  std::vector<std::uint64_t> bits;
  append_bits(bits, matmul(random(Layout<3, Shard<0, dp>, Shard<2, tp>>{}, {batch, tokens, width}, 1),
                           random(Layout<2, Shard<0, tp>>{}, {width, 7}, 2)));
  const auto weight = random(Layout<3, Shard<2, tp>>{}, {width, 3, 48}, 3);
  const auto pairs = random(Layout<4, Shard<0, dp>, Shard<3, tp>>{}, {batch, tokens, 3, 48}, 4);
  append_bits(bits, matmul_input_gradient(pairs, weight));
  bool fault = false;
  const auto add_gradients = [&]<class Raw>(Raw, const auto& x, const auto& y_gradient, const auto& shape) {
    ShardedTensor<Raw, FixedPoint, Reproducible> sum(mesh, {shape});
    struct Slot {
      decltype(sum)& tensor;
      float beta;
      bool* fault;
    };
    for (const float beta : {0.0F, 1.0F})
      operation::Matmul{}.right_gradient_into(Slot{sum, beta, &fault}, y_gradient, x);
    append_bits(bits, sum);
  };
  add_gradients(Layout<3, Shard<2, tp>, Partial<Sum, dp>>{}, random(Tokens{}, {batch, tokens, width}, 5),
                pairs, weight.shape());
  add_gradients(Layout<2, Partial<Sum, dp, tp>>{}, random(Stream{}, {batch, tokens, width}, 5),
                random(Stream{}, {batch, tokens, 5}, 6), std::array<std::int64_t, 2>{width, 5});
  // Two column-parallel products read one value: both parts of its gradient are sums over tp.
  Tape<Reproducible> tape;
  const auto read = tape.variable(random(Tokens{}, {batch, tokens, width}, 7));
  for (const std::uint64_t number : {8U, 9U}) {
    const auto y = matmul(read, random(Layout<2, Shard<1, tp>>{}, {width, 24}, number));
    tape.seed(y, random(Layout<3, Shard<0, dp>, Shard<2, tp>>{}, {batch, tokens, 24}, 2 + number));
  }
  tape.backward();
  append_bits(bits, tape.gradient(read));
  if (fault)
    bits.clear();
  return bits;
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

TEST_CASE("gradients of products over a grid are products over it, in layers, too") {
  using Grid = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  using Layers = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>, sw::Partial<sw::Sum, cp>>;
  for (const std::array<int, 3>& sizes : {std::array{1, 1, 1}, {2, 1, 2}, {1, 1, 3}, {2, 1, 3}, {2, 2, 2}})
    CHECK(on_ranks(sizes[0] * sizes[1] * sizes[2], [sizes](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(sizes[0]), sw::extent<cp>(sizes[1]),
                                      sw::extent<tp>(sizes[2])};
            check_grid<Grid>(mesh, findings);
            check_grid<Layers>(mesh, findings);
          }) == "");
}

TEMPLATE_TEST_CASE("products on a Reproducible target have the same bits on every mesh", "", float,
                   sw::bfloat16) {
  std::vector<std::uint64_t> one_rank;
  for (const Extents extents : {Extents{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 8}})
    CHECK(on_ranks(extents.data * extents.tensor, [&](sw::HostCommunicator world, Findings& findings) {
            const auto bits = reproducible_products<TestType>(mesh_of(world, extents));
            if (extents.data * extents.tensor == 1)
              one_rank = bits;
            findings.expect(bits == one_rank && !bits.empty(), "dp=", extents.data, " tp=", extents.tensor);
          }) == "");
}

TEST_CASE("a Reproducible product names extents that its ranks cannot share") {
  const auto message = [](const auto& product) {
    try {
      product();
    } catch (const sw::InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(
      on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
        const Mesh mesh = mesh_of(world, {1, 2});
        const sw::ShardedTensor<sw::Layout<2, sw::Shard<1, tp>>, float, Reproducible> x(mesh, {3, 12});
        const sw::ShardedTensor<Row, float, Reproducible> w(mesh, {12, 5});
        const std::string parts = message([&] { static_cast<void>(sw::matmul(x, w)); });
        findings.expect(parts.find("must have 8 equal parts, and each rank some of them, but the extents are "
                                   "[3, 12], and 2 ranks share dimension 1") != std::string::npos,
                        parts);
        const std::string ordered =
            message([&] { static_cast<void>(sw::matmul<sw::OrderedProducts>(x, w)); });
        findings.expect(ordered == parts, ordered); // such products are those of the target
        sw::ShardedTensor<sw::Layout<2, sw::Partial<sw::Sum, tp>>, float, Reproducible> y(mesh, {3, 5});
        const std::string added = message([&] { sw::matmul_into(y, x, w, 1.0); });
        findings.expect(added.find("must not be added to its destination") != std::string::npos, added);
        using Stream = sw::Layout<3, sw::Shard<1, tp>>;
        const sw::ShardedTensor<Stream, float, Reproducible> stream(mesh, {1, 34, 4});
        sw::ShardedTensor<sw::Layout<2, sw::Partial<sw::Sum, tp>>, sw::FixedPoint, Reproducible> sum(mesh,
                                                                                                     {4, 4});
        const std::string leaves = message([&] { sw::matmul_weight_gradient_into(sum, stream, stream); });
        findings.expect(
            leaves.find("each rank's tokens must be whole blocks of 2, a sixteenth of a sequence "
                        "or less, but 2 ranks share sequences of 34 (choose sequences of a multiple of 16 "
                        "tokens and 1, 2, 4, 8 or 16 ranks, or of a multiple of 512 tokens)") !=
                std::string::npos,
            leaves);
      }) == "");
}
