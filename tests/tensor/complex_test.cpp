// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "tensor/gradient_along.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/halos.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/constant_operand.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Complex elements: every operation that takes them, against std::complex.

namespace {

using namespace shardwright;
using axis::dp;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using Complex = std::complex<double>;
using Rows = Layout<2, Shard<0, dp>>;
using Columns = Layout<2, Shard<1, dp>>;
using Field = ShardedTensor<Rows, Complex>;
constexpr std::array<std::int64_t, 2> shape{5, 7}; // blocks are uneven, and empty on the last of six ranks

Complex number_at(std::uint64_t seed, std::int64_t i) {
  const auto random = [&](std::uint64_t part) {
    std::uint64_t bits = (seed * 977 + static_cast<std::uint64_t>(i) * 2 + part) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 29U)) * 0xbf58476d1ce4e5b9U;
    return static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0;
  };
  return {random(0), random(1)};
}

/// Element [i, j] of the whole tensor is number_at(seed, 7 i + j).
template <class L = Rows, class Element = Complex>
ShardedTensor<L, Element> filled(const DeviceMesh<dp>& mesh, std::uint64_t seed) {
  ShardedTensor<L, Element> out(mesh, shape);
  const auto offset = out.local_offset();
  const auto block = out.mutable_local();
  for (std::size_t i = 0; i < block.extent(0); ++i)
    for (std::size_t j = 0; j < block.extent(1); ++j)
      block(i, j) = static_cast<Element>(number_at(seed, (offset[0] + static_cast<std::int64_t>(i)) * 7 +
                                                             offset[1] + static_cast<std::int64_t>(j)));
  return out;
}

/// Whether every element of `found` is wanted(a, b) of two tensors with the seeds 1 and 2.
template <class Tensor>
bool is(const Tensor& found, const std::function<Complex(Complex, Complex)>& wanted,
        double tolerance = 4e-16) {
  const auto offset = found.local_offset();
  const auto block = found.local();
  for (std::size_t i = 0; i < block.extent(0); ++i)
    for (std::size_t j = 0; j < block.extent(1); ++j) {
      const std::int64_t at =
          (offset[0] + static_cast<std::int64_t>(i)) * 7 + offset[1] + static_cast<std::int64_t>(j);
      const Complex should = wanted(number_at(1, at), number_at(2, at));
      if (!(std::abs(Complex(block(i, j)) - should) <= tolerance * (1 + std::abs(should))))
        return false;
    }
  return true;
}

struct Tripled {
  static constexpr std::string_view name = "tripled";
  static constexpr bool slope_of_result = false;
  static constexpr bool takes_complex = true;
  template <class V> V operator()(V x) const { return 3 * x; }
  template <class V> double slope(V) const { return 3; }
};

using OnMesh = std::function<void(const DeviceMesh<dp>&, Findings&)>;
std::string on_mesh(int ranks, const OnMesh& function) {
  return on_ranks(ranks, [&](const HostCommunicator& world, Findings& findings) {
    function(DeviceMesh<dp>(world, extent<dp>(ranks)), findings);
  });
}

} // namespace

TEST_CASE("complex tensors have the arithmetic of std::complex") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_mesh(ranks, [](const DeviceMesh<dp>& mesh, Findings& findings) {
            const Field x = filled(mesh, 1), y = filled(mesh, 2);
            const Complex n(0.5, -2);
            using Z = Complex;
            findings.expect(is(x + y, [](Z a, Z b) { return a + b; }), "x + y");
            findings.expect(is(x - y, [](Z a, Z b) { return a - b; }), "x - y");
            findings.expect(is(x * y, [](Z a, Z b) { return a * b; }), "x * y");
            findings.expect(is(x / y, [](Z a, Z b) { return a / b; }), "x / y");
            findings.expect(is(conj(x), [](Z a, Z) { return std::conj(a); }), "conj(x)");
            findings.expect(is(-x, [](Z a, Z) { return -a; }), "-x");
            findings.expect(is(x * 3, [](Z a, Z) { return 3.0 * a; }), "x * 3");
            findings.expect(is(n * x, [&](Z a, Z) { return n * a; }), "n * x");
            findings.expect(is(x + n, [&](Z a, Z) { return a + n; }), "x + n");
            findings.expect(is(n - x, [&](Z a, Z) { return n - a; }), "n - x");
            findings.expect(is(x / n, [&](Z a, Z) { return a / n; }), "x / n");
            findings.expect(is(n / x, [&](Z a, Z) { return n / a; }), "n / x");
            Field z = filled(mesh, 2);
            axpy(2, x, z);
            findings.expect(is(z, [](Z a, Z b) { return 2.0 * a + b; }), "axpy");
            axpby(1, x, -0.5, z);
            findings.expect(is(z, [](Z, Z b) { return -0.5 * b; }), "axpby");
            scale_in_place(z, Complex(0, 2));
            findings.expect(is(z, [](Z, Z b) { return Z(0, -1) * b; }), "scale_in_place");
            fill(z, n);
            findings.expect(is(z, [&](Z, Z) { return n; }), "fill");
            findings.expect(is(
                                convert<std::complex<float>>(x), [](Z a, Z) { return a; }, 1e-7),
                            "convert");
            ShardedTensor<Layout<1>, Complex> row(mesh, {7});
            fill(row, n);
            findings.expect(is(x * row, [&](Z a, Z) { return a * n; }), "a row that is repeated");
          }) == "");
}

TEST_CASE("a slope may be a plain number, of real and of complex elements") {
  CHECK(on_mesh(2, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          const Elementwise<Tripled> tripled;
          const Field x = filled(mesh, 1);
          findings.expect(is(tripled.gradient(x, x, tripled(x)), [](Complex a, Complex) { return 3.0 * a; }),
                          "complex");
          ShardedTensor<Rows, double> y(mesh, shape);
          fill(y, 2);
          findings.expect(is(tripled.gradient(y, y, tripled(y)), [](Complex, Complex) { return 6.0; }),
                          "real");
        }) == "");
}

TEST_CASE("a quotient of complex numbers does not overflow where the result fits") {
  CHECK(on_mesh(1, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          Field x(mesh, {1, 2}), y(mesh, {1, 2});
          fill(x, Complex(1e300, -2e300));
          fill(y, Complex(1e300, 1e300));
          y.mutable_data()[1] = Complex(-1e-300, 4e-300);
          const auto z = x / y;
          findings.expect(std::abs(z.data()[0] - Complex(-0.5, -1.5)) < 1e-15, "large numbers");
          findings.expect(std::isinf(z.data()[1].real()), "a result that does not fit");
        }) == "");
}

TEST_CASE("a complex operand that is infinite or not a number is not hidden by the result") {
  CHECK(on_mesh(1, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          constexpr double infinite = std::numeric_limits<double>::infinity();
          constexpr double nan = std::numeric_limits<double>::quiet_NaN();
          Field x(mesh, {1, 1}), y(mesh, {1, 1});
          const auto with = [&](Complex a, Complex b) {
            fill(x, a);
            fill(y, b);
          };
          const auto finite = [](const Field& z) {
            return std::isfinite(z.data()[0].real() + z.data()[0].imag());
          };
          for (const Complex bad : {Complex(infinite, 0), Complex(infinite, -infinite), Complex(1, nan)}) {
            for (const Complex good : {Complex(1, 0), Complex(-2, 3), Complex(0, 0)}) {
              with(bad, good);
              findings.expect(!finite(x * y), bad, " times ", good);
              findings.expect(!finite(x / y), bad, " over ", good);
              findings.expect(!finite(x + y), bad, " plus ", good);
            }
            const auto product = item(redistribute<Layout<0>>(dot(x, x)));
            findings.expect(!std::isfinite(product.real()), "dot of ", bad);
          }
          with(Complex(1, 2), Complex(0, 0));
          findings.expect(!finite(x / y), "a quotient by 0");
          with(Complex(1, 2), Complex(infinite, 0));
          findings.expect((x / y).data()[0] == Complex(0, 0), "a quotient by an infinite number");
        }) == "");
}

TEST_CASE("dot conjugates its left operand, and the squared norm is real") {
  Complex product = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < 35; ++i) {
    product += std::conj(number_at(1, i)) * number_at(2, i);
    squares += std::norm(number_at(1, i));
  }
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_mesh(ranks, [&](const DeviceMesh<dp>& mesh, Findings& findings) {
            const Field x = filled(mesh, 1);
            const auto found = item(redistribute<Layout<0>>(dot(x, filled(mesh, 2))));
            findings.expect(std::abs(found - product) < 1e-13, "dot");
            const double length = item(norm(x));
            findings.expect(std::abs(length * length - squares) < 1e-13, "norm");
            const auto narrow = convert<std::complex<float>>(x);
            static_assert(std::is_same_v<decltype(item(norm(narrow))), float>);
            findings.expect(std::abs(item(norm(narrow)) - length) < 1e-6, "norm of floats");
          }) == "");
  // Longer than the blocks of the sum, and not a multiple of its streams.
  CHECK(on_mesh(2, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          ShardedTensor<Layout<1, Shard<0, dp>>, Complex> x(mesh, {40003});
          fill(x, Complex(1, 2));
          auto y = x * Complex(0, 1);
          findings.expect(item(redistribute<Layout<0>>(dot(x, y))) == Complex(0, 5 * 40003.0), "a long dot");
        }) == "");
}

TEST_CASE("sums and means of complex elements are those of their parts") {
  Complex all = 0;
  std::array<Complex, 7> columns{};
  for (std::size_t i = 0; i < 35; ++i) {
    const Complex number = number_at(1, static_cast<std::int64_t>(i));
    all += number;
    columns[i % 7] += number;
  }
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_mesh(ranks, [&](const DeviceMesh<dp>& mesh, Findings& findings) {
            const Field x = filled(mesh, 1);
            const auto sums = redistribute<Layout<1>>(sum<0>(x));
            for (std::size_t j = 0; j < 7; ++j)
              findings.expect(std::abs(sums.data()[j] - columns[j]) < 1e-14, "column ", j);
            findings.expect(std::abs(item(redistribute<Layout<0>>(sum(x))) - all) < 1e-14, "all");
            findings.expect(std::abs(item(redistribute<Layout<0>>(mean(x))) - all / 35.0) < 1e-15, "mean");
            const auto rows = sum<1>(convert<std::complex<float>>(x));
            static_assert(std::is_same_v<decltype(rows)::value_type, std::complex<float>>);
            for (std::size_t i = 0; i < rows.local_size(); ++i) {
              Complex row = 0;
              for (std::size_t j = 0; j < 7; ++j)
                row += x.data()[7 * i + j];
              findings.expect(std::abs(Complex(rows.data()[i]) - row) < 1e-6, "row ", i);
            }
            const Field way = filled(mesh, 3);
            findings.expect(
                tensor_test::gradient_error(x, way,
                                            [](const auto& z) {
                                              if constexpr (AnyShardedTensor<decltype(z)>)
                                                return redistribute<Layout<0>>(mean(z * z)) +
                                                       sum(redistribute<Layout<1>>(sum<0>(z * z)));
                                              else
                                                return mean(z * z).template as<Layout<0>>() +
                                                       sum(sum<0>(z * z).template as<Layout<1>>());
                                            }) < 1e-8,
                "gradient");
          }) == "");
  CHECK(on_mesh(2, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          ShardedTensor<Layout<1, Shard<0, dp>>, Complex> x(mesh, {40003}); // several blocks
          fill(x, Complex(1, 2));
          findings.expect(item(redistribute<Layout<0>>(sum(x))) == Complex(40003, 2 * 40003.0), "a long sum");
        }) == "");
}

TEST_CASE("random complex elements do not depend on the layout, and their parts are numbers of one row") {
  for (const int ranks : {1, 2, 3, 6})
    CHECK(on_mesh(ranks, [](const DeviceMesh<dp>& mesh, Findings& findings) {
            const RandomKey key{.seed = 3, .tensor = 5};
            Field x(mesh, shape), y(mesh, shape);
            ShardedTensor<Columns, Complex> across(mesh, shape);
            ShardedTensor<Layout<2>, double> uniform(mesh, {5, 14}), normal(mesh, {5, 14});
            fill_uniform(x, key, -1, 2);
            fill_uniform(across, key, -1, 2);
            fill_uniform(uniform, key, -1, 2);
            fill_normal(y, key, 0.5, 2);
            fill_normal(normal, key, 0.5, 2);
            const auto is_row = [&](const auto& found, const auto& wanted, const char* what) {
              const auto whole = redistribute<Layout<2>>(found);
              for (std::size_t i = 0; i < 35; ++i)
                findings.expect(whole.data()[i] == Complex(wanted.data()[2 * i], wanted.data()[2 * i + 1]),
                                what, " element ", i);
            };
            is_row(x, uniform, "uniform");
            is_row(across, uniform, "uniform, by columns");
            is_row(y, normal, "normal");
          }) == "");
}

TEST_CASE("a complex dot of views of two sizes is refused") {
  std::vector<Complex> memory(5, Complex(1, 2));
  std::vector<double> workspace(2);
  const auto view = [](auto& of, std::size_t size) {
    return VectorView<typename std::remove_reference_t<decltype(of)>::value_type, DefaultTarget>(of.data(),
                                                                                                 size);
  };
  const DefaultTarget::execution_space execution;
  kernels::conjugate_dot(execution, view(memory, 4), view(memory, 4), view(memory, 5), view(workspace, 2));
  CHECK(memory[0] == Complex(20, 0));
  CHECK_THROWS_WITH(kernels::conjugate_dot(execution, view(memory, 4), view(memory, 5), view(memory, 5),
                                           view(workspace, 2)),
                    shardwright_test::ContainsSubstring("both views must have the same size"));
}

TEST_CASE("transitions move and add complex elements") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_mesh(ranks, [&](const DeviceMesh<dp>& mesh, Findings& findings) {
            const auto first = [](Complex a, Complex) { return a; };
            const auto columns = redistribute<Columns>(filled(mesh, 1));
            findings.expect(is(columns, first), "rows to columns");
            findings.expect(is(redistribute<Layout<2>>(columns), first), "columns to all");
            ShardedTensor<Layout<2, Partial<Sum, dp>>, Complex> part(mesh, shape);
            fill_zero(part);
            for (std::size_t i = 0; i < 35; ++i)
              part.mutable_data()[i] =
                  number_at(1, static_cast<std::int64_t>(i)) * static_cast<double>(1 + mesh.rank());
            const double times = mesh.size() * (mesh.size() + 1) / 2.0;
            const auto sum = [&](Complex a, Complex) { return a * times; };
            findings.expect(is(redistribute<Rows>(part), sum, 1e-15), "reduce_scatter");
            findings.expect(is(redistribute<Layout<2>>(std::move(part)), sum, 1e-15), "all_reduce");
          }) == "");
  CHECK(on_mesh(2, [](const DeviceMesh<dp>& mesh, Findings& findings) {
          using WithHalo = Layout<1, Shard<0, dp, Halo<1>>>;
          ShardedTensor<Layout<1, Shard<0, dp>>, Complex> x(mesh, {4});
          fill(x, Complex(mesh.rank(), 1));
          const auto wide = redistribute<WithHalo>(x);
          const std::size_t inner = mesh.rank() == 0 ? 3 : 0;
          findings.expect(wide.data()[inner] == Complex(1 - mesh.rank(), 1), "the neighbour's element");
          findings.expect(wide.data()[3 - inner] == Complex(0, 0), "zero beyond the end");
        }) == "");
}

TEST_CASE("gradients of complex operations are those of their real and imaginary parts") {
  for (const int ranks : {1, 2, 3, 6})
    CHECK(on_mesh(ranks, [](const DeviceMesh<dp>& mesh, Findings& findings) {
            const Field x = filled(mesh, 1), way = filled(mesh, 3), y = filled(mesh, 2);
            ShardedTensor<Layout<1>, Complex> row(mesh, {7});
            for (std::size_t j = 0; j < 7; ++j)
              row.mutable_data()[j] = number_at(4, static_cast<std::int64_t>(j));
            const Complex n(0.5, -2);
            const auto agrees = [&](const char* what, const auto& function) {
              findings.expect(tensor_test::gradient_error(x, way, function) < 1e-8, what);
            };
            agrees("x y x", [&](const auto& z) { return z * y * z; });
            agrees("y / x - n x", [&](const auto& z) { return y / z - n * z; });
            agrees("conj(x) x + n / x", [&](const auto& z) { return conj(z) * z + n / z; });
            agrees("x row, n - x", [&](const auto& z) { return (n - z) * row + z; });
            agrees("dot", [&](const auto& z) {
              if constexpr (AnyShardedTensor<decltype(z)>)
                return redistribute<Layout<0>>(dot(z, y)) * redistribute<Layout<0>>(dot(y * y, z));
              else
                return dot(z, y).template as<Layout<0>>() * dot(y * y, z).template as<Layout<0>>();
            });
            // The row's own gradient is a sum over all rows.
            ShardedTensor<Layout<1>, Complex> along(mesh, {7});
            fill(along, Complex(1, -3));
            findings.expect(tensor_test::gradient_error(row, along, [&](const auto& z) { return x * z; }) <
                                1e-8,
                            "a row that is repeated");
          }) == "");
}
