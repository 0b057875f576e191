// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/elementwise/with_number.hpp>
#include <shardwright/tensor/kernels/checksum.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/formulas.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/repeat.hpp>

#include "tensor/kernels_support.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace kernels_test;

namespace {

template <class Element> Element exp_one(Element x, bool nonpositive = false) {
  const auto lanes = kernels::broadcast<Element>(x);
  const auto y = nonpositive ? kernels::detail::exp_of_nonpositive<Element>(lanes)
                             : kernels::detail::exp_of<Element>(lanes);
  Element values[kernels::lane_count<Element>];
  __builtin_memcpy(values, &y, sizeof(y));
  for (const Element value : values)
    REQUIRE((value == values[0] || (std::isnan(value) && std::isnan(values[0]))));
  return values[0];
}

template <class Element> double worst_ulp(double low, double high, bool nonpositive) {
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

TEMPLATE_TEST_CASE("exp is within two units in the last place, and exact at the ends of its range",
                   "[kernels]", float, double) {
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

namespace {

/// The largest error, in units in the last place, of a function on lanes.
template <class Element, class OnLanes, class Exact>
double worst_error(double low, double high, const OnLanes& on_lanes, const Exact& exact) {
  constexpr std::size_t width = kernels::lane_count<Element>;
  double worst = 0;
  for (int i = 0; i < 20000; i += static_cast<int>(width)) {
    Element x[width];
    Element y[width];
    for (std::size_t k = 0; k < width; ++k)
      x[k] = static_cast<Element>(low + (high - low) * (i + static_cast<double>(k)) / 20000);
    kernels::Lanes<Element> lanes;
    __builtin_memcpy(&lanes, x, sizeof(lanes));
    lanes = on_lanes(lanes);
    __builtin_memcpy(y, &lanes, sizeof(lanes));
    for (std::size_t k = 0; k < width; ++k) {
      const long double wanted = exact(static_cast<long double>(x[k]));
      int exponent = 0;
      static_cast<void>(std::frexp(wanted == 0 ? 1.0L : wanted, &exponent));
      const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<Element>::digits);
      worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(y[k]) - wanted) / unit));
    }
  }
  return worst;
}

/// One number through a function on lanes.
template <class Element, class OnLanes> Element one_of(Element x, const OnLanes& on_lanes) {
  Element y[kernels::lane_count<Element>];
  const auto lanes = on_lanes(kernels::broadcast<Element>(x));
  __builtin_memcpy(y, &lanes, sizeof(lanes));
  return y[0];
}

} // namespace

TEMPLATE_TEST_CASE("tanh, logarithm and normal distribution are within a few units in the last place",
                   "[kernels]", float, double) {
  using namespace kernels::detail;
  using Element = TestType;
  const bool is_float = std::is_same_v<Element, float>;
  const Element infinity = std::numeric_limits<Element>::infinity();
  const Element nan = std::numeric_limits<Element>::quiet_NaN();

  const auto tanh_lanes = [](auto x) { return tanh_of<Element>(x); };
  const auto tanh_exact = [](long double x) { return std::tanh(x); };
  for (const double end : {1e-6, 1e-3, 0.5, 3.0, 50.0, 1000.0})
    CHECK(worst_error<Element>(-end, end, tanh_lanes, tanh_exact) < 3);
  CHECK(one_of<Element>(infinity, tanh_lanes) == 1);
  CHECK(one_of<Element>(-infinity, tanh_lanes) == -1);
  CHECK(one_of<Element>(0, tanh_lanes) == 0);
  CHECK(std::isnan(one_of<Element>(nan, tanh_lanes)));

  const auto log_lanes = [](auto x) { return log_of<Element>(x); };
  const auto log_exact = [](long double x) { return std::log(x); };
  for (const double end : {1.0, 2.0, 1000.0, is_float ? 3e38 : 1e308})
    CHECK(worst_error<Element>(end / 20000, end, log_lanes, log_exact) < 2);
  CHECK(worst_error<Element>(0.99, 1.01, log_lanes, log_exact) < 2);
  CHECK(one_of<Element>(0, log_lanes) == -infinity);
  CHECK(one_of<Element>(1, log_lanes) == 0);
  CHECK(one_of<Element>(infinity, log_lanes) == infinity);
  const Element least = std::numeric_limits<Element>::denorm_min();
  CHECK(one_of<Element>(least, log_lanes) == std::log(least));
  CHECK(std::isnan(one_of<Element>(-1, log_lanes)));
  CHECK(std::isnan(one_of<Element>(nan, log_lanes)));

  const auto below_lanes = [](auto x) { return NormalDistribution<Element>(x).below; };
  const auto below_exact = [](long double x) { return 0.5L * std::erfc(-x * std::sqrt(0.5L)); };
  const auto density_lanes = [](auto x) { return NormalDistribution<Element>(x).density; };
  const auto density_exact = [](long double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L));
  };
  for (const double begin : {-0.1, -3.0, is_float ? -12.9 : -37.0}) {
    CHECK(worst_error<Element>(begin, 4, below_lanes, below_exact) < 6);
    CHECK(worst_error<Element>(begin, 4, density_lanes, density_exact) < 6);
  }
  CHECK(one_of<Element>(infinity, below_lanes) == 1);
  CHECK(one_of<Element>(-infinity, below_lanes) == 0);
  CHECK(one_of<Element>(0, below_lanes) == Element(0.5));
  CHECK(std::isnan(one_of<Element>(nan, below_lanes)));
}

TEMPLATE_TEST_CASE("Differences, quotients and repeated rows match plain loops at odd sizes", "[kernels]",
                   float, double, sw::bfloat16) {
  using Number = sw::AccumulationElement<TestType>;
  for (const std::size_t columns : {0, 1, 2, 3, 17, 64, 5003}) {
    const auto a = random_matrix<TestType>(3, columns, 1);
    const auto b = random_matrix<TestType>(3, columns, 2);
    auto out = random_matrix<TestType>(3, columns, 3);
    const auto expect = [&](auto formula, std::size_t period) {
      for (std::size_t i = 0; i < out.size(); ++i)
        if (static_cast<Number>(out.data()[i]) !=
            static_cast<Number>(TestType(
                formula(static_cast<Number>(a.data()[i]), static_cast<Number>(b.data()[i % period])))))
          return false;
      return true;
    };
    combine(sw::operation::Subtract(), a, b, out);
    CHECK(expect([](Number x, Number y) { return x - y; }, out.size() + 1));
    combine(sw::operation::Divide(), a, b, out);
    CHECK(expect([](Number x, Number y) { return x / y; }, out.size() + 1));
    if (columns > 0)
      combine(sw::operation::Divide(), a, b, out, columns);
    CHECK(expect([](Number x, Number y) { return x / y; }, columns));
    map(sw::detail::TimesNumber<double>{-0.5}, a, out);
    CHECK(expect([](Number x, Number) { return Number(-0.5) * x; }, out.size() + 1));

    const auto each = random_vector<TestType>(3, 4);
    kernels::repeat(execution(), -0.5, each, columns, 1, out);
    Matrix<TestType> twice("twice", 6, columns);
    kernels::repeat(execution(), -0.5, a, 2, columns, twice);
    const auto half = [](TestType x) { return static_cast<Number>(TestType(Number(-0.5) * Number(x))); };
    bool numbers = true, rows = true;
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t c = 0; c < columns; ++c) {
        numbers = numbers && static_cast<Number>(out(i / 2, c)) == half(each(i / 2));
        rows = rows && static_cast<Number>(twice(i, c)) == half(a(i / 2, c));
      }
    CHECK(numbers);
    CHECK(rows);
  }
}

TEMPLATE_TEST_CASE("Sums over rows are in fixed order and rounded once", "[kernels]", float, double,
                   sw::bfloat16) {
  using Number = sw::AccumulationElement<TestType>;
  for (const std::size_t rows : {0, 1, 5, 64, 65, 300})
    for (const std::size_t columns : {1, 2, 7, 32, 2050}) {
      const auto x = random_matrix<TestType>(rows, columns, 1);
      Vector<Number> out("out", columns), work("work", kernels::column_sums_workspace(rows, columns));
      column_sums(x, out, work);
      column_sums(x, out, work, true);
      double worst = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i)
          sum += 2 * static_cast<double>(static_cast<Number>(x(i, c)));
        worst = std::max(worst, std::abs(static_cast<double>(out(c)) - sum));
      }
      CHECK(worst < (std::is_same_v<Number, double> ? 1e-12 : 1e-4));
    }
}

TEMPLATE_TEST_CASE("The scalar product is exact to double rounding", "[kernels]", float, double,
                   sw::bfloat16) {
  const auto e = execution();
  for (const std::size_t size : {0, 1, 7, 31, 8192, 8193, 30011}) {
    const auto x = random_vector<TestType>(size, 5);
    const auto y = random_vector<TestType>(size, 6);
    Vector<double> out("out", 1), work("work", kernels::reduce_workspace(size));
    kernels::dot(e, x, y, out, work);
    kernels::dot(e, x, y, out, work, true);
    long double sum = 0;
    for (std::size_t i = 0; i < size; ++i)
      sum += 2 * static_cast<long double>(static_cast<sw::AccumulationElement<TestType>>(x(i))) *
             static_cast<long double>(static_cast<sw::AccumulationElement<TestType>>(y(i)));
    CHECK(std::abs(out(0) - static_cast<double>(sum)) <= 1e-11);
  }
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
    combine(sw::operation::Multiply(), a, b, out);
    REQUIRE(expect([](TestType x, TestType y) { return x * y; }));
    kernels::copy(e, a, out);
    REQUIRE(expect([](TestType x, TestType) { return x; }));
    map(sw::detail::TimesNumber<double>{0.5}, out, out);
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

TEST_CASE("A view that does not start at a register boundary is handled", "[kernels]") {
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

TEMPLATE_TEST_CASE("Elementwise functions match their formulas and keep NaN", "[kernels]", float, double) {
  const auto x = random_matrix<TestType>(5, 37, 1, 3.0);
  const auto positive = copy_of(x);
  const auto y = copy_of(x);
  map(sw::operation::Square(), x, positive);
  const TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  x(2, 33) = nan;
  positive(2, 33) = nan;
  const auto expect = [&](const char* what, const auto& in, auto forward, auto formula,
                          double error = tolerance<TestType>) {
    INFO(what);
    forward(in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double wanted = formula(static_cast<double>(in.data()[i]));
      REQUIRE(std::isnan(wanted) == std::isnan(y.data()[i]));
      if (!std::isnan(wanted))
        REQUIRE(std::abs(wanted - static_cast<double>(y.data()[i])) <= error * (1 + std::abs(wanted)));
    }
  };
  expect(
      "gelu_tanh", x, [&](auto& v) { map(sw::operation::GeluTanh(), v, y); },
      [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); });
  expect(
      "gelu_erf", x, [&](auto& v) { map(sw::operation::GeluErf(), v, y); },
      [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); });
  expect(
      "silu", x, [&](auto& v) { map(sw::operation::Silu(), v, y); },
      [](double v) { return v / (1 + std::exp(-v)); });
  expect(
      "relu", x, [&](auto& v) { map(sw::operation::Relu(), v, y); }, [](double v) { return v < 0 ? 0.0 : v; },
      0);
  expect(
      "sigmoid", x, [&](auto& v) { map(sw::operation::Sigmoid(), v, y); },
      [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(
      "tanh", x, [&](auto& v) { map(sw::operation::Tanh(), v, y); }, [](double v) { return std::tanh(v); });
  expect(
      "exp", x, [&](auto& v) { map(sw::operation::Exp(), v, y); }, [](double v) { return std::exp(v); });
  expect(
      "log", positive, [&](auto& v) { map(sw::operation::Log(), v, y); },
      [](double v) { return std::log(v); });
  expect(
      "sqrt", positive, [&](auto& v) { map(sw::operation::Sqrt(), v, y); },
      [](double v) { return std::sqrt(v); });
  expect(
      "square", x, [&](auto& v) { map(sw::operation::Square(), v, y); }, [](double v) { return v * v; });
}

TEST_CASE("Gradients of elementwise functions match finite differences", "[kernels]") {
  const auto x = random_matrix<double>(3, 21, 1, 2.0);
  const auto dy = random_matrix<double>(3, 21, 2);
  const auto y = copy_of(x);
  const auto dx = copy_of(x);
  const auto check = [&](auto function) {
    map(function, x, y);
    map_slopes(function, function.slope_of_result ? y : x, dy, dx);
    require_gradient(x, dx, [&] {
      map(function, x, y);
      return weighted_sum(dy, y);
    });
  };
  check(sw::operation::GeluTanh());
  check(sw::operation::GeluErf());
  check(sw::operation::Silu());
  check(sw::operation::Relu());
  check(sw::operation::Sigmoid());
  check(sw::operation::Tanh());
  check(sw::operation::Exp());
  check(sw::operation::Square());
  map(sw::operation::Square(), x, x);
  combine(sw::operation::Add(), x, std::vector<double>{0.1}, x, 1);
  check(sw::operation::Log());
  check(sw::operation::Sqrt());
}

namespace {

template <class Element>
void square_sum(const Vector<Element>& x, const Vector<double>& result, const Vector<double>& work) {
  kernels::SquareSum squares(execution(), work.data());
  squares.add(x);
  squares.finish(result);
}

} // namespace

TEMPLATE_TEST_CASE("Reductions are exact to double rounding and count non-finite elements", "[kernels]",
                   float, double) {
  for (const std::size_t size : {0, 1, 7, 31, 8192, 8193, 30011}) {
    const auto x = random_vector<TestType>(size, 5);
    const Vector<double> work("work", kernels::reduce_workspace(size));
    const Vector<double> result("result", 1);
    result(0) = 100;
    long double expected = 0;
    for (std::size_t i = 0; i < size; ++i)
      expected += static_cast<long double>(x(i)) * x(i);
    long double absolutes = 0, largest = 0;
    for (std::size_t i = 0; i < size; ++i) {
      absolutes += std::abs(static_cast<long double>(x(i)));
      largest = std::max(largest, std::abs(static_cast<long double>(x(i))));
    }
    kernels::sum_of_absolutes(execution(), x, result, work);
    CHECK(std::abs(result(0) - static_cast<double>(absolutes)) <= 1e-12 * static_cast<double>(absolutes));
    kernels::largest_absolute(execution(), x, result, work);
    CHECK(result(0) == static_cast<double>(largest));
    result(0) = 100;
    square_sum(x, result, work);
    REQUIRE(std::abs(static_cast<double>(expected) - result(0)) <= 1e-13 * static_cast<double>(expected));
    kernels::count_nonfinite(execution(), x, result, work);
    REQUIRE(result(0) == 0.0);
    if (size < 2)
      continue;
    x(size - 1) = std::numeric_limits<TestType>::quiet_NaN();
    x(size / 2 - 1) = -std::numeric_limits<TestType>::infinity();
    kernels::count_nonfinite(execution(), x, result, work, true);
    REQUIRE(result(0) == 2.0);
    square_sum(x, result, work);
    REQUIRE(!std::isfinite(result(0)));
  }
}

TEST_CASE("The parts of a reduction hold every element once, in whole blocks", "[kernels]") {
  for (const std::size_t size : {0, 1, 8192, 8193, 30011, 100000})
    for (const std::size_t parts : {1, 2, 3, 5}) {
      std::size_t blocks = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t first = kernels::reduce_part(size, part, parts);
        const std::size_t end = kernels::reduce_part(size, part + 1, parts);
        REQUIRE(first <= end);
        blocks += kernels::reduce_workspace(end - first);
      }
      CHECK(kernels::reduce_part(size, 0, parts) == 0);
      CHECK(kernels::reduce_part(size, parts, parts) == size);
      CHECK(blocks == kernels::reduce_workspace(size));
    }
}

TEMPLATE_TEST_CASE("Squares of many views at once have the same bits as one after the other", "[kernels]",
                   float, double) {
  const std::vector<std::size_t> sizes{1, 8193, 0, 30011, 8192};
  for (const std::size_t views : {std::size_t{0}, std::size_t{5}, std::size_t{300}}) { // more than one launch
    std::vector<Vector<TestType>> all;
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < views; ++i) {
      all.push_back(random_vector<TestType>(i < sizes.size() ? sizes[i] : 1 + i % 9, 7 + i));
      blocks += kernels::reduce_workspace(all.back().size());
    }
    const Vector<double> work("work", blocks), result("result", 1), expected("expected", 1),
        alone("alone", 1);
    result(0) = 100;
    kernels::SquareSum<std::decay_t<decltype(execution())>> sum(execution(), work.data());
    for (const auto& view : all) {
      sum.add(view);
      const Vector<double> own("own", kernels::reduce_workspace(view.size()));
      square_sum(view, alone, own);
      const double* const partials = own.data();
      kernels::run_sum_in_order(execution(), partials, own.size(), expected.data(), true);
    }
    sum.finish(result);
    REQUIRE((views == 0 || expected(0) > 0));
    REQUIRE(result(0) == expected(0));
  }
}

TEMPLATE_TEST_CASE("A checksum depends on every bit and position, but not on the blocks", "[kernels]", float,
                   double) {
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
