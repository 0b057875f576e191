// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/larger.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "tensor/grid_product_cases.hpp"

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/elementwise/choices.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/tensor/slice.hpp>
#include <shardwright/tensor/softmax.hpp>
#include <shardwright/train/dry_run.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

// The gathered result of each operation on sharded operands, compared with the same operation on the gathered
// operands in double.

namespace {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using Values = std::vector<double>;

/// The complete tensor, whole, on every rank.
template <class Tensor> Values whole(const Tensor& tensor) {
  const auto replicated = redistribute<Layout<Tensor::tensor_rank>>(tensor);
  return Values(replicated.data(), replicated.data() + replicated.local_size());
}

double largest_difference(const Values& left, const Values& right) {
  if (left.size() != right.size())
    return INFINITY;
  double out = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    out = shardwright_test::larger(out, std::abs(left[i] - right[i]));
  return out;
}

/// [m, k] x [k, n], each plain or transposed.
Values product(const Values& left, bool transpose_left, const Values& right, bool transpose_right,
               std::size_t m, std::size_t n, std::size_t k) {
  Values out(m * n, 0.0);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t l = 0; l < k; ++l)
        out[i * n + j] +=
            left[transpose_left ? l * m + i : i * k + l] * right[transpose_right ? j * k + l : l * n + j];
  return out;
}

using Tokens = Layout<3, Shard<0, dp>>; // [batch, sequence, features]
using Heads = Layout<3, Shard<1, tp>>;  // [features, heads, size]
using Activations = Layout<4, Shard<0, dp>, Shard<2, tp>>;
static_assert(std::is_same_v<MatmulLayout<Tokens, Heads>, Activations>);

template <class Element> std::string check_products(int d, int t, double tolerance) {
  return on_ranks(d * t, [=](HostCommunicator world, Findings& findings) {
    const DeviceMesh mesh{world, extent<dp>(d), extent<tp>(t)};
    constexpr std::size_t batch = 3;
    constexpr std::size_t sequence = 2;
    constexpr std::size_t features = 5;
    constexpr std::size_t heads = 4;
    constexpr std::size_t size = 3;
    ShardedTensor<Tokens, Element> x(mesh, {batch, sequence, features});
    ShardedTensor<Heads, Element> w(mesh, {features, heads, size});
    fill_normal(x, {1, 1});
    fill_normal(w, {1, 2});
    const auto expect = [&](const char* what, const Values& found, const Values& wanted) {
      findings.expect(largest_difference(found, wanted) <= tolerance, what, " on rank ", world.rank());
    };
    const Values xs = whole(x);
    const Values ws = whole(w);

    auto y = matmul(x, w);
    static_assert(std::is_same_v<typename decltype(y)::layout, Activations>);
    findings.expect(y.shape() == typename decltype(y)::Shape{batch, sequence, heads, size}, "shape");
    const Values ys = whole(y);
    expect("matmul", ys, product(xs, false, ws, false, batch * sequence, heads * size, features));

    auto dx = matmul_input_gradient(y, w);
    static_assert(std::is_same_v<typename decltype(dx)::layout, Layout<3, Shard<0, dp>, Partial<Sum, tp>>>);
    expect("input gradient", whole(redistribute<Tokens>(dx)),
           product(ys, false, ws, true, batch * sequence, features, heads * size));

    auto dw = matmul_weight_gradient(x, y);
    static_assert(std::is_same_v<typename decltype(dw)::layout, Layout<3, Shard<1, tp>, Partial<Sum, dp>>>);
    Values dws = product(xs, true, ys, false, features, heads * size, batch * sequence);
    expect("weight gradient", whole(redistribute<Heads>(dw)), dws);

    matmul_weight_gradient_into(dw, x, y, 1.0);
    for (double& value : dws)
      value *= 2;
    expect("accumulation", whole(redistribute<Heads>(dw)), dws);

    fill(y, static_cast<Element>(NAN));
    matmul_into(y, x, w);
    expect("beta 0 ignores what was there", whole(y), ys);
    matmul_input_gradient_into(dx, y, w, -1.0);
    findings.expect(largest_difference(whole(redistribute<Tokens>(dx)), Values(xs.size(), 0.0)) <= tolerance,
                    "subtraction of the same gradient");
  });
}

} // namespace

TEST_CASE("products of tensors of rank 3 and 4 and their gradients") {
  CHECK(check_products<float>(1, 1, 1e-4) == "");
  CHECK(check_products<double>(2, 2, 1e-12) == "");
  CHECK(check_products<double>(1, 3, 1e-12) == "");
  CHECK(check_products<double>(4, 2, 1e-12) == ""); // a rank without tokens
}

TEST_CASE("contraction over a sharded dimension leaves a Partial; vectors may be operands") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<tp>(3)};
          ShardedTensor<Layout<2, Shard<1, tp>>, double> a(mesh, {4, 7});
          ShardedTensor<Layout<1, Shard<0, tp>>, double> v(mesh, {7});
          fill_uniform(a, {2, 1}, -1.0, 1.0);
          fill_uniform(v, {2, 2}, -1.0, 1.0);
          const auto av = matmul(a, v);
          static_assert(std::is_same_v<decltype(av)::layout, Layout<1, Partial<Sum, tp>>>);
          findings.expect(largest_difference(whole(av), product(whole(a), false, whole(v), false, 4, 1, 7)) <
                              1e-13,
                          "matrix times vector");
          ShardedTensor<Layout<1>, double> u(mesh, {4});
          fill_uniform(u, {2, 3});
          const auto ua = matmul(u, a);
          static_assert(std::is_same_v<decltype(ua)::layout, Layout<1, Shard<0, tp>>>);
          findings.expect(largest_difference(whole(ua), product(whole(u), false, whole(a), false, 1, 7, 4)) <
                              1e-13,
                          "vector times matrix");
        }) == "");
}

TEST_CASE("extents that do not fit and tensors of two meshes are named") {
  CHECK(
      on_ranks(2, [](HostCommunicator world, Findings& findings) {
        const DeviceMesh mesh{world, extent<tp>(2)};
        const ShardedTensor<Layout<2>> x(mesh, {3, 4});
        const ShardedTensor<Layout<2, Shard<1, tp>>> w(mesh, {5, 6});
        std::string message;
        try {
          static_cast<void>(matmul(x, w));
        } catch (const InvalidArgument& error) {
          message = error.what();
        }
        findings.expect(
            message.find(
                "the last extent of the left tensor must be the first of the right one, but the shapes are [3, 4] and [5, 6]") !=
                std::string::npos,
            message);
        findings.expect(message.find("operations_test.cpp:") != std::string::npos,
                        "the line of the call: ", message);
        const DeviceMesh other{world, extent<tp>(2)};
        const ShardedTensor<Layout<2, Shard<1, tp>>> elsewhere(other, {4, 6});
        message.clear();
        try {
          static_cast<void>(matmul(x, elsewhere));
        } catch (const InvalidArgument& error) {
          message = error.what();
        }
        findings.expect(message.find("matmul: the tensors must be on one mesh") != std::string::npos,
                        message);
      }) == "");
}

TEST_CASE("products over a grid equal plain sums, and move the bytes of their plan") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            tensor_test::check_grid_products(world, findings);
          }) == "");
}

TEST_CASE("a dry run of a product over a grid knows its calls, its memory and its operations") {
  using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
  const auto product = []<class Where>(const HostCommunicator& world, std::type_identity<Where>) {
    const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
    const ShardedTensor<Grid, double, Where> a(mesh, {50, 700}), b(mesh, {700, 30});
    static_cast<void>(matmul(a, b));
    return mesh.pool_statistics<Where>().peak_bytes;
  };
  std::size_t counted = 0;
  const DryRun run = dry_run(4, 0, [&](const HostCommunicator& world) {
    counted = product(world, std::type_identity<Counting<DefaultTarget>>());
  });
  CHECK(run.flops == 2.0 * 25 * 700 * 15);
  constexpr std::array<int, 2> extents{2, 2};
  std::size_t bytes = 0;
  int calls = 0;
  for (const RecordedCall& call : run.calls)
    if (call.operation == Operation::broadcast) {
      ++calls;
      CHECK(call.started);
      bytes += call.peer == 0 ? 0 : call.bytes;
    }
  CHECK(calls == 2 * GridProduct<Grid>::steps(extents, 700));
  CHECK(bytes == static_cast<std::size_t>(GridProduct<Grid>::bytes(extents, {50, 700, 30}, 8)));
  CHECK(on_ranks(4, [&](const HostCommunicator& world, Findings& findings) {
          const std::size_t real = product(world, std::type_identity<DefaultTarget>());
          findings.expect(real == counted, "peak of ", real, " bytes");
        }) == "");
}

TEST_CASE("sums and products with a right operand of equal or lower rank") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          using Block = Layout<2, Shard<0, dp>, Shard<1, tp>>;
          ShardedTensor<Block, double> a(mesh, {5, 7});
          ShardedTensor<Block, double> b(mesh, {5, 7});
          ShardedTensor<Layout<1, Shard<0, tp>>, double> bias(mesh, {7});
          fill_normal(a, {3, 1});
          fill_normal(b, {3, 2});
          fill_normal(bias, {3, 3});
          const Values as = whole(a);
          const Values bs = whole(b);
          const Values cs = whole(bias);
          Values sum(as.size());
          Values broadcast(as.size());
          Values scaled(as.size());
          for (std::size_t i = 0; i < as.size(); ++i) {
            sum[i] = as[i] + bs[i];
            broadcast[i] = as[i] * cs[i % 7];
            scaled[i] = -0.5 * as[i];
          }
          findings.expect(whole(add(a, b)) == sum, "add");
          findings.expect(whole(multiply(a, bias)) == broadcast, "multiply by a row");
          findings.expect(whole(scale(a, -0.5)) == scaled, "scale");
          add.into(b, a, b);
          findings.expect(whole(b) == sum, "add into an operand");
          multiply.into(a, a, bias);
          findings.expect(whole(a) == broadcast, "multiply into an operand");
          ShardedTensor<Layout<1, Partial<Sum, tp>>, std::int32_t> parts(mesh, {3});
          fill_zero(parts);
          for (std::size_t i = 0; i < 3; ++i)
            parts.mutable_data()[i] = static_cast<std::int32_t>(10 * i) + mesh.coordinate<tp>();
          scale_in_place(parts, 3);
          const auto twice = add(parts, parts);
          static_assert(std::is_same_v<decltype(twice)::layout, Layout<1, Partial<Sum, tp>>>);
          findings.expect(whole(twice) == Values{6, 126, 246}, "Partial plus Partial, integers");
        }) == "");
}

TEST_CASE("arithmetic operators, axpy, scalar products and norms") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          using Block = Layout<2, Shard<0, dp>, Shard<1, tp>>;
          ShardedTensor<Block, double> a(mesh, {5, 7});
          ShardedTensor<Block, double> b(mesh, {5, 7});
          ShardedTensor<Layout<1, Shard<0, tp>>, double> row(mesh, {7});
          ShardedTensor<Layout<0>, double> number(mesh, {});
          fill_normal(a, {8, 1});
          fill_uniform(b, {8, 2}, 1.0, 2.0);
          fill_uniform(row, {8, 3}, 1.0, 2.0);
          fill(number, 4.0);
          const Values as = whole(a);
          const Values bs = whole(b);
          const Values rows = whole(row);
          const auto expect = [&](const char* what, const Values& found, auto formula) {
            for (std::size_t i = 0; i < as.size(); ++i)
              findings.expect(found[i] == formula(as[i], bs[i], rows[i % 7]), what, " ", i);
          };
          expect("a + b", whole(a + b), [](double x, double y, double) { return x + y; });
          expect("a - b", whole(a - b), [](double x, double y, double) { return x - y; });
          expect("a * b", whole(a * b), [](double x, double y, double) { return x * y; });
          expect("a / b", whole(a / b), [](double x, double y, double) { return x / y; });
          expect("a - row", whole(a - row), [](double x, double, double r) { return x - r; });
          expect("a / row", whole(a / row), [](double x, double, double r) { return x / r; });
          expect("a / number", whole(a / number), [](double x, double, double) { return x / 4; });
          expect("-a * 3", whole(-a * 3), [](double x, double, double) { return -x * 3; });
          expect("2 * a / 4", whole(2 * a / 4), [](double x, double, double) { return x / 2; });
          auto into = b.clone();
          subtract.into(into, a, into);
          expect("subtract_into", whole(into), [](double x, double y, double) { return x - y; });
          divide.into(into, a, row);
          expect("divide_into", whole(into), [](double x, double, double r) { return x / r; });
          const double* const memory = b.data();
          axpy(0.5, a, b);
          findings.expect(b.data() == memory, "axpy stays where y is");
          expect("axpy", whole(b), [](double x, double y, double) { return std::fma(0.5, x, y); });

          double product = 0;
          double squares = 0;
          const Values now = whole(b);
          for (std::size_t i = 0; i < as.size(); ++i) {
            product += as[i] * now[i];
            squares += as[i] * as[i];
          }
          const auto part = dot(a, b);
          static_assert(std::is_same_v<decltype(part)::layout, Layout<0, Partial<Sum, dp, tp>>>);
          findings.expect(std::abs(item(redistribute<Layout<0>>(part)) - product) < 1e-13, "dot");
          findings.expect(std::abs(item(redistribute<Layout<0>>(squared_norm(a))) - squares) < 1e-13,
                          "squared norm");
          const auto length = norm(a);
          static_assert(std::is_same_v<decltype(length)::layout, Layout<0>>);
          findings.expect(std::abs(item(length) - std::sqrt(squares)) < 1e-13, "norm");
          // A Partial operand leaves the result Partial over its axes too.
          const auto unfinished = sum<1>(a);
          ShardedTensor<Layout<1, Shard<0, dp>>, double> factors(mesh, {5});
          fill_normal(factors, {8, 4});
          const auto weighed = dot(unfinished, factors);
          static_assert(std::is_same_v<decltype(weighed)::layout, Layout<0, Partial<Sum, dp, tp>>>);
          const Values weights = whole(factors);
          double wanted = 0;
          for (std::size_t i = 0; i < as.size(); ++i)
            wanted += as[i] * weights[i / 7];
          findings.expect(std::abs(item(redistribute<Layout<0>>(weighed)) - wanted) < 1e-13,
                          "dot of a Partial");
        }) == "");
}

TEST_CASE("nonlinear elementwise functions") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(3)};
          ShardedTensor<Layout<1, Shard<0, dp>>, double> x(mesh, {37});
          fill_uniform(x, {4, 1}, 0.1, 2.0);
          const Values xs = whole(x);
          const auto expect = [&](const char* what, const Values& found, auto function) {
            Values wanted(xs.size());
            std::transform(xs.begin(), xs.end(), wanted.begin(), function);
            findings.expect(largest_difference(found, wanted) < 1e-12, what);
          };
          expect("exp", whole(exp(x)), [](double v) { return std::exp(v); });
          expect("log", whole(log(x)), [](double v) { return std::log(v); });
          expect("sqrt", whole(sqrt(x)), [](double v) { return std::sqrt(v); });
          expect("square", whole(square(x)), [](double v) { return v * v; });
          expect("tanh", whole(tanh(x)), [](double v) { return std::tanh(v); });
          expect("sigmoid", whole(sigmoid(x)), [](double v) { return 1 / (1 + std::exp(-v)); });
          expect("silu", whole(silu(x)), [](double v) { return v / (1 + std::exp(-v)); });
          expect("gelu_tanh", whole(gelu_tanh(x)), [](double v) {
            return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
          });
          expect("gelu_erf", whole(gelu_erf(x)),
                 [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); });
          expect("relu of a difference", whole(relu(add(x, scale(x, -2.0)))), [](double) { return 0.0; });
          auto out = x.clone();
          square.into(out, out);
          expect("into its own input", whole(out), [](double v) { return v * v; });
          const auto expect_into = [&](const auto& function) {
            function.into(out, x);
            findings.expect(whole(out) == whole(function(x)), function.name, ".into");
          };
          expect_into(Elementwise<operation::Exp>());
          expect_into(Elementwise<operation::Log>());
          expect_into(Elementwise<operation::Sqrt>());
          expect_into(Elementwise<operation::Tanh>());
          expect_into(relu);
          expect_into(silu);
          expect_into(sigmoid);
          expect_into(gelu_tanh);
          expect_into(gelu_erf);
          const auto narrow = convert<float>(x);
          findings.expect(std::is_same_v<decltype(narrow)::value_type, float>, "element");
          expect("convert", whole(narrow),
                 [](double v) { return static_cast<double>(static_cast<float>(v)); });
        }) == "");
}

TEST_CASE("reductions over each dimension and over all") {
  CHECK(
      on_ranks(4, [](HostCommunicator world, Findings& findings) {
        const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
        ShardedTensor<Layout<3, Shard<0, dp>, Shard<2, tp>>, double> x(mesh, {3, 4, 5});
        fill_normal(x, {5, 1});
        const Values xs = whole(x);
        const auto reduced = [&](std::size_t outer, std::size_t middle, std::size_t inner, auto start,
                                 auto function) {
          Values out(outer * inner, start);
          for (std::size_t o = 0; o < outer; ++o)
            for (std::size_t m = 0; m < middle; ++m)
              for (std::size_t i = 0; i < inner; ++i)
                out[o * inner + i] = function(out[o * inner + i], xs[(o * middle + m) * inner + i]);
          return out;
        };
        const auto plus = [](double left, double right) { return left + right; };
        const auto most = [](double left, double right) { return std::max(left, right); };
        const auto first = sum<0>(x);
        static_assert(std::is_same_v<decltype(first)::layout, Layout<2, Shard<1, tp>, Partial<Sum, dp>>>);
        findings.expect(largest_difference(whole(first), reduced(1, 3, 20, 0.0, plus)) < 1e-13, "sum over 0");
        findings.expect(largest_difference(whole(sum<1>(x)), reduced(3, 4, 5, 0.0, plus)) < 1e-13,
                        "sum over 1");
        findings.expect(largest_difference(whole(reduce<Max, 2>(x)), reduced(12, 5, 1, -INFINITY, most)) == 0,
                        "max over 2");
        Values means = reduced(3, 4, 5, 0.0, plus);
        for (double& each : means)
          each /= 4;
        const auto mean_of_1 = mean<1>(x);
        findings.expect(largest_difference(whole(mean_of_1), means) < 1e-13, "mean over 1");
        const auto mean_of_0 = mean<0>(x);
        static_assert(std::is_same_v<decltype(mean_of_0)::layout, Layout<2, Shard<1, tp>, Partial<Sum, dp>>>);
        means = reduced(1, 3, 20, 0.0, plus);
        for (double& each : means)
          each /= 3;
        findings.expect(largest_difference(whole(mean_of_0), means) < 1e-13, "mean over 0");
        findings.expect(
            std::abs(item(redistribute<Layout<0>>(mean(x))) - reduced(1, 60, 1, 0.0, plus)[0] / 60) < 1e-14,
            "mean of all");
        const auto total = item(redistribute<Layout<0>>(sum(x)));
        findings.expect(std::abs(total - reduced(1, 60, 1, 0.0, plus)[0]) < 1e-12, "sum over all");
        findings.expect(item(redistribute<Layout<0>>(reduce_all<Min>(x))) ==
                            *std::min_element(xs.begin(), xs.end()),
                        "min over all");
        ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t> few(mesh, {1}); // one rank has no rows
        fill(few, -7);
        findings.expect(item(redistribute<Layout<0>>(reduce_all<Max>(few))) == -7,
                        "an empty block is neutral");
      }) == "");
}

TEST_CASE("softmax of rows and its logarithm, for any width and large numbers") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(3)};
          const auto check = [&]<class Element>(Element, double tolerance) {
            for (const std::int64_t width : {1, 2, 7, 16, 33}) {
              ShardedTensor<Layout<3, Shard<0, dp>>, Element> x(mesh, {4, 2, width});
              fill_uniform(x, {9, 1}, 200.0, 210.0); // exp overflows in float
              const Values xs = whole(x);
              const Values found = whole(softmax(x));
              const Values logarithms = whole(log_softmax(x));
              const auto columns = static_cast<std::size_t>(width);
              for (std::size_t row = 0; row < xs.size(); row += columns) {
                double sum = 0;
                for (std::size_t i = 0; i < columns; ++i)
                  sum += std::exp(xs[row + i] - 200);
                for (std::size_t i = 0; i < columns; ++i) {
                  const double wanted = xs[row + i] - 200 - std::log(sum);
                  findings.expect(std::abs(found[row + i] - std::exp(wanted)) <= tolerance,
                                  "softmax of width ", width);
                  findings.expect(std::abs(logarithms[row + i] - wanted) <= 10 * tolerance,
                                  "log_softmax of width ", width);
                }
              }
            }
          };
          check(1.0, 1e-13);
          check(1.0f, 2e-5);
          check(bfloat16(1.0f), 0x1p-8);
        }) == "");
}

TEST_CASE("powers, limits, choices, slices and joined tensors are those of each element") {
  CHECK(on_ranks(3, [](const HostCommunicator& world, Findings& findings) {
          const DeviceMesh mesh{world, extent<tp>(3)};
          ShardedTensor<Layout<2, Shard<0, tp>>, double> x(mesh, {7, 5}), y(mesh, {7, 5});
          fill_uniform(x, {1, 2}, -2.0, 2.0);
          fill_uniform(y, {1, 3}, -2.0, 2.0);
          if (mesh.rank() == 0)
            y.mutable_data()[0] = NAN;
          if (mesh.rank() == 1)
            x.mutable_data()[1] = y.mutable_data()[1];
          ShardedTensor<Layout<2, Shard<0, tp>>, std::int32_t> mask(mesh, {7, 5});
          for (std::size_t i = 0; i < mask.local_size(); ++i)
            mask.mutable_data()[i] = (5 * static_cast<int>(mask.local_offset()[0]) + static_cast<int>(i)) % 2;
          const Values xs = whole(x), ys = whole(y);
          const auto same = [&](const char* what, const Values& got, const auto& formula) {
            bool equal = got.size() == xs.size();
            for (std::size_t i = 0; equal && i < got.size(); ++i) {
              const double wanted = formula(xs[i], ys[i], i);
              equal = std::isnan(wanted) ? std::isnan(got[i])
                                         : std::abs(got[i] - wanted) <= 1e-13 * std::abs(wanted);
            }
            findings.expect(equal, what);
          };
          same("clamp", whole(clamp(y, -0.5, 1.0)),
               [](double, double b, std::size_t) { return std::isnan(b) ? b : std::clamp(b, -0.5, 1.0); });
          for (const double exponent : {0.0, 1.0, 2.0, 5.0, 64.0, -3.0, 2.5, -0.5, 100.0, double(NAN)})
            same("pow", whole(shardwright::pow(x, exponent)), [=](double a, double, std::size_t) {
              return exponent == 100.0 && a < 0 ? NAN : std::pow(a, exponent);
            });
          same("maximum", whole(maximum(x, y)),
               [](double a, double b, std::size_t) { return std::isnan(b) ? b : std::max(a, b); });
          same("where", whole(where(mask, x, y)),
               [](double a, double b, std::size_t i) { return i % 2 != 0 ? a : b; });

          const Values part = whole(slice<1>(x, 1, 3)), none = whole(slice<1>(x, 5, 0));
          const Values both = whole(concat<1>(slice<1>(x, 3, 2), x));
          findings.expect(part.size() == 21 && none.empty() && both.size() == 49, "sizes of parts");
          for (std::size_t row = 0; row < 7; ++row) {
            for (std::size_t i = 0; i < 3; ++i)
              findings.expect(part[3 * row + i] == xs[5 * row + 1 + i], "slice");
            for (std::size_t i = 0; i < 7; ++i)
              findings.expect(both[7 * row + i] == xs[5 * row + (i < 2 ? 3 + i : i - 2)], "concat");
          }
          const auto refused = [&](const char* sentence, const auto& call) {
            try {
              static_cast<void>(call());
              findings.expect(false, sentence);
            } catch (const InvalidArgument& error) {
              findings.expect(std::string(error.what()).find(sentence) != std::string::npos, error.what());
            }
          };
          refused("within the extent of dimension 1, 5, but they are 2 from 4 on",
                  [&] { return slice<1>(x, 4, 2); });
          refused("the lower limit must be at most the upper one", [&] { return clamp(x, 1, -1); });
        }) == "");
}

TEST_CASE("large sums of floats stay accurate") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          ShardedTensor<Layout<1, Shard<0, dp>>> x(mesh, {3'000'001});
          fill_uniform(x, {6, 1});
          double wanted = 0;
          for (std::size_t i = 0; i < x.local_size(); ++i)
            wanted += static_cast<double>(x.data()[i]);
          const auto part = reduce_all<Sum>(x);
          findings.expect(std::abs(*part.data() / wanted - 1.0) < 1e-6, "local sum");
        }) == "");
}

TEST_CASE("16-bit tensors are computed in float, and their products may be kept as floats") {
  CHECK(
      on_ranks(4, [](HostCommunicator world, Findings& findings) {
        const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
        ShardedTensor<Layout<2, Shard<0, dp>>, bfloat16> x(mesh, {6, 700});
        ShardedTensor<Layout<2, Shard<1, tp>>, bfloat16> w(mesh, {700, 5});
        fill_normal(x, {7, 1});
        fill_normal(w, {7, 2});
        const Values xs = whole(x);
        const Values ws = whole(w);
        const auto near = [&](const char* what, const Values& found, const Values& wanted, double rounding) {
          for (std::size_t i = 0; i < wanted.size(); ++i)
            findings.expect(std::abs(found[i] - wanted[i]) <= rounding * std::abs(wanted[i]) + 1e-3, what);
        };
        const Values ys = product(xs, false, ws, false, 6, 5, 700);
        const auto y = matmul(x, w);
        near("a product rounds once", whole(y), ys, 0x1p-8);
        ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, tp>>> sums(mesh, {6, 5});
        matmul_into(sums, x, w);
        near("a product in float", whole(sums), ys, 1e-6);
        // The weight gradient: summed over the ranks in float too.
        ShardedTensor<Layout<2, Shard<1, tp>, Partial<Sum, dp>>> gradient(mesh, {700, 5});
        matmul_weight_gradient_into(gradient, x, y);
        matmul_weight_gradient_into(gradient, x, y, 1.0);
        Values wanted = product(xs, true, whole(y), false, 700, 5, 6);
        for (double& value : wanted)
          value *= 2;
        near("a weight gradient in float", whole(redistribute<Layout<2, Shard<1, tp>>>(gradient)), wanted,
             1e-6);

        const auto rounded = convert<bfloat16>(sums);
        findings.expect(whole(rounded) == whole(y), "converting is rounding");
        near("a sum", whole(add(y, rounded)), whole(scale(y, 2.0)), 0);
        near("a function", whole(sigmoid(y)), whole(convert<bfloat16>(sigmoid(convert<double>(y)))), 0x1p-8);
        const auto total = redistribute<Layout<0>>(reduce_all<Sum>(y));
        double exact = 0;
        for (const double value : whole(y))
          exact += value;
        findings.expect(std::abs(item(total) - exact) <= 3 * 0x1p-8 * std::abs(exact), "a sum over all");
      }) == "");
}

TEST_CASE("a gradient reads what its operation declares, and nothing else") {
  constexpr GradientReads none{}, rest{.others = true};
  STATIC_REQUIRE(!none.operand(0) && !none.operand(1) && !none.operand(2) && !none.result);
  STATIC_REQUIRE(!rest.operand(0) && !rest.operand(1) && rest.operand(2) && rest.operand(3));
}
