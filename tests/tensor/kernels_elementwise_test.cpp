// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/activation.hpp>
#include <shardwright/tensor/kernels/checksum.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/math.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include "tensor/kernels_support.hpp"

#include <vector>

using namespace kernels_test;

namespace {

template <class Element>
Element exp_one(Element x, bool nonpositive = false) {
  const auto lanes = kernels::detail::broadcast<Element>(x);
  const auto y = nonpositive ? kernels::detail::exp_of_nonpositive<Element>(lanes)
                             : kernels::detail::exp_of<Element>(lanes);
  Element values[kernels::detail::lane_count<Element>];
  __builtin_memcpy(values, &y, sizeof(y));
  for (const Element value : values)
    REQUIRE((value == values[0] || (std::isnan(value) && std::isnan(values[0]))));
  return values[0];
}

template <class Element>
double worst_ulp(double low, double high, bool nonpositive) {
  double worst = 0.0;
  for (int i = 0; i <= 20000; ++i) {
    const Element x = static_cast<Element>(low + (high - low) * i / 20000);
    const long double exact = std::exp(static_cast<long double>(x));
    const Element rounded = static_cast<Element>(exact);
    const Element ulp = std::nextafter(rounded, std::numeric_limits<Element>::infinity()) - rounded;
    const long double error = (static_cast<long double>(exp_one<Element>(x, nonpositive)) - exact) / ulp;
    worst = std::max(worst, static_cast<double>(error < 0 ? -error : error));
  }
  return worst;
}

} // namespace

TEMPLATE_TEST_CASE("exp is within two units in the last place, and right at the ends", "[kernels]", float,
                   double) {
  const bool is_float = std::is_same_v<TestType, float>;
  REQUIRE(worst_ulp<TestType>(is_float ? -87 : -708, is_float ? 88.7 : 709.7, false) < 2.0);
  REQUIRE(worst_ulp<TestType>(-1, 1, false) < 2.0);
  REQUIRE(worst_ulp<TestType>(is_float ? -87 : -708, 0, true) < 2.0);
  const TestType infinity = std::numeric_limits<TestType>::infinity();
  REQUIRE(exp_one<TestType>(0) == 1);
  REQUIRE(exp_one<TestType>(infinity) == infinity);
  REQUIRE(exp_one<TestType>(-infinity) == 0);
  REQUIRE(exp_one<TestType>(TestType(is_float ? 89 : 710)) == infinity);
  REQUIRE(exp_one<TestType>(TestType(is_float ? -104 : -746)) == 0);
  REQUIRE(exp_one<TestType>(TestType(is_float ? -95 : -720)) > 0); // subnormal
  REQUIRE(std::isnan(exp_one<TestType>(std::numeric_limits<TestType>::quiet_NaN())));
  REQUIRE(exp_one<TestType>(0, true) == 1);
  REQUIRE(exp_one<TestType>(-infinity, true) == 0);
  REQUIRE(exp_one<TestType>(TestType(is_float ? -88 : -709), true) == 0);
  REQUIRE(std::isnan(exp_one<TestType>(std::numeric_limits<TestType>::quiet_NaN(), true)));
}

TEMPLATE_TEST_CASE("Elementwise kernels match plain loops at odd sizes", "[kernels]", float, double) {
  for (const std::size_t columns : {0, 1, 3, 17, 64, 5003}) {
    const auto a = random_matrix<TestType>(3, columns, 1);
    const auto b = random_matrix<TestType>(3, columns, 2);
    auto out = random_matrix<TestType>(3, columns, 3);
    const auto e = execution();
    const auto expect = [&](auto formula) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (out.data()[i] != static_cast<TestType>(formula(a.data()[i], b.data()[i])))
          return false;
      }
      return true;
    };
    kernels::add(e, a, b, out);
    REQUIRE(expect([](TestType x, TestType y) { return x + y; }));
    kernels::multiply(e, a, b, out);
    REQUIRE(expect([](TestType x, TestType y) { return x * y; }));
    kernels::copy(e, a, out);
    REQUIRE(expect([](TestType x, TestType) { return x; }));
    kernels::scale(e, 0.5, out);
    REQUIRE(expect([](TestType x, TestType) { return x / 2; }));
    kernels::copy(e, b, out);
    kernels::axpy(e, 2.0, a, out);
    REQUIRE(expect([](TestType x, TestType y) { return std::fma(TestType(2), x, y); }));
    kernels::fill(e, out, TestType(-3));
    REQUIRE(expect([](TestType, TestType) { return -3; }));
    Matrix<double> wide("wide", 3, columns);
    kernels::copy(e, a, wide);
    REQUIRE(largest_difference(a, wide) == 0.0);
  }
  REQUIRE_THROWS_AS(kernels::add(execution(), random_matrix<TestType>(2, 2, 1),
                                 random_matrix<TestType>(2, 3, 1), random_matrix<TestType>(2, 3, 1)),
                    sw::InvalidArgument);
}

TEST_CASE("A view that starts off any register boundary is handled", "[kernels]") {
  const auto source = random_vector<float>(103, 1);
  for (std::size_t offset = 0; offset < 5; ++offset) {
    Vector<float> target("target", 103);
    const sw::VectorView<float> from(source.data() + offset, 90);
    const sw::VectorView<float> to(target.data() + 2 * offset, 90);
    kernels::axpy(execution(), 1.0, from, to);
    for (std::size_t i = 0; i < 103; ++i) {
      const bool inside = i >= 2 * offset && i < 2 * offset + 90;
      REQUIRE(target(i) == (inside ? source(i - offset) : 0.0f));
    }
  }
}

TEMPLATE_TEST_CASE("Activations match their formulas and keep NaN", "[kernels]", float, double) {
  const auto x = random_matrix<TestType>(5, 37, 1, 3.0);
  const auto y = copy_of(x);
  const auto e = execution();
  const auto expect = [&](auto formula) {
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      worst = std::max(
          worst, std::abs(formula(static_cast<double>(x.data()[i])) - static_cast<double>(y.data()[i])));
    }
    return worst;
  };
  kernels::gelu_forward(e, x, y);
  REQUIRE(expect([](double v) {
            return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
          }) < tolerance<TestType>);
  kernels::silu_forward(e, x, y);
  REQUIRE(expect([](double v) { return v / (1 + std::exp(-v)); }) < tolerance<TestType>);
  kernels::relu_forward(e, x, y);
  REQUIRE(expect([](double v) { return v > 0 ? v : 0.0; }) == 0.0);
  x(2, 33) = std::numeric_limits<TestType>::quiet_NaN();
  const auto count_nan = [&y] {
    int count = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      count += std::isnan(y.data()[i]) ? 1 : 0;
    return count;
  };
  kernels::gelu_forward(e, x, y);
  REQUIRE((std::isnan(y(2, 33)) && count_nan() == 1));
  kernels::silu_forward(e, x, y);
  REQUIRE((std::isnan(y(2, 33)) && count_nan() == 1));
  kernels::relu_forward(e, x, y);
  REQUIRE((std::isnan(y(2, 33)) && count_nan() == 1));
}

TEST_CASE("Activation gradients match finite differences", "[kernels]") {
  const auto e = execution();
  const auto x = random_matrix<double>(3, 21, 1, 2.0);
  const auto dy = random_matrix<double>(3, 21, 2);
  const auto y = copy_of(x);
  const auto dx = copy_of(x);
  kernels::gelu_backward(e, x, dy, dx);
  require_gradient(x, dx, [&] {
    kernels::gelu_forward(e, x, y);
    return weighted_sum(dy, y);
  });
  kernels::silu_backward(e, x, dy, dx);
  require_gradient(x, dx, [&] {
    kernels::silu_forward(e, x, y);
    return weighted_sum(dy, y);
  });
  kernels::relu_backward(e, x, dy, dx);
  require_gradient(x, dx, [&] {
    kernels::relu_forward(e, x, y);
    return weighted_sum(dy, y);
  });
}

TEMPLATE_TEST_CASE("Reductions are exact to double rounding and count what is not finite", "[kernels]", float,
                   double) {
  for (const std::size_t size : {0, 1, 7, 31, 8192, 8193, 30011}) {
    const auto x = random_vector<TestType>(size, 5);
    const Vector<double> work("work", kernels::reduce_workspace(size));
    const Vector<double> result("result", 1);
    result(0) = 100;
    long double expected = 0;
    for (std::size_t i = 0; i < size; ++i)
      expected += static_cast<long double>(x(i)) * x(i);
    kernels::sum_of_squares(execution(), x, result, work);
    REQUIRE(std::abs(static_cast<double>(expected) - result(0)) <= 1e-13 * static_cast<double>(expected));
    kernels::count_nonfinite(execution(), x, result, work);
    REQUIRE(result(0) == 0.0);
    if (size < 2)
      continue;
    x(size - 1) = std::numeric_limits<TestType>::quiet_NaN();
    x(size / 2 - 1) = -std::numeric_limits<TestType>::infinity();
    kernels::count_nonfinite(execution(), x, result, work, true);
    REQUIRE(result(0) == 2.0);
    kernels::sum_of_squares(execution(), x, result, work);
    REQUIRE(!std::isfinite(result(0)));
  }
}

TEMPLATE_TEST_CASE("Squares of many views have the bits of one view after the other", "[kernels]", float,
                   double) {
  const std::vector<std::size_t> sizes{1, 8193, 0, 30011, 8192};
  for (const std::size_t views : {std::size_t{0}, std::size_t{5}, std::size_t{300}}) { // more than one launch
    std::vector<Vector<TestType>> all;
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < views; ++i) {
      all.push_back(random_vector<TestType>(i < sizes.size() ? sizes[i] : 1 + i % 9, 7 + i));
      blocks += kernels::reduce_workspace(all.back().size());
    }
    const Vector<double> work("work", blocks), result("result", 1), expected("expected", 1);
    result(0) = 100;
    kernels::SquareSum<std::decay_t<decltype(execution())>> sum(execution(), work.data());
    for (const auto& view : all) {
      sum.add(view);
      const Vector<double> own("own", kernels::reduce_workspace(view.size()));
      kernels::sum_of_squares(execution(), view, expected, own, true);
    }
    sum.finish(result);
    REQUIRE((views == 0 || expected(0) > 0));
    REQUIRE(result(0) == expected(0));
  }
}

TEMPLATE_TEST_CASE("A checksum sees every bit and every change of places, whatever the blocks", "[kernels]",
                   float, double) {
  for (const std::size_t size : {1, 7, 8192, 8195}) {
    const auto x = random_vector<TestType>(size, 5);
    const Vector<std::uint64_t> work("work", kernels::reduce_workspace(size));
    const Vector<std::uint64_t> result("result", 1);
    const auto checksum = [&] {
      kernels::checksum(execution(), x, result, work);
      return result(0);
    };
    const std::uint64_t before = checksum();
    REQUIRE(checksum() == before);
    for (const std::size_t place : {std::size_t{0}, size / 2, size - 1}) {
      auto* const bytes = reinterpret_cast<unsigned char*>(&x(place));
      for (std::size_t bit = 0; bit < 8 * sizeof(TestType); bit += 5) {
        bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << bit % 8);
        REQUIRE(checksum() != before);
        bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << bit % 8);
      }
    }
    if (size > 1) {
      std::swap(x(0), x(size - 1));
      REQUIRE(checksum() != before);
      std::swap(x(0), x(size - 1));
    }
    REQUIRE(checksum() == before);
  }
  const Vector<TestType> none("none", 0);
  const Vector<std::uint64_t> work("work", 0), result("result", 1);
  kernels::checksum(execution(), none, result, work);
  REQUIRE(result(0) == 0);
}
