// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/launch_ranks.hpp"
#include "support/ranks.hpp"
#include "tensor/halo_cases.hpp"

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/exact_sums.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/norms.hpp>
#include <shardwright/tensor/reduce.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace tensor_test;
using shardwright_test::on_ranks;

using Haloed = Layout<2, Shard<0, x, Halo<1>>, Shard<1, y, PeriodicHalo<2>>>;
using Plain = WithoutHalos<Haloed>;

template <class Element>
void check_numbers(const HostCommunicator& world, std::array<std::int64_t, 2> shape, Findings& findings) {
  const int rows = world.size() % 2 == 0 ? 2 : world.size();
  const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
  ShardedTensor<Plain, Element> a(mesh, shape);
  ShardedTensor<Plain, Element> b(mesh, shape);
  fill_normal(a, {.seed = 1, .tensor = 0});
  fill_normal(b, {.seed = 1, .tensor = 1}, 0.25);
  const auto whole_a = redistribute<Layout<2>>(a);
  const auto whole_b = redistribute<Layout<2>>(b);
  double dot = 0;
  double sum = 0;
  double square = 0;
  double largest = 0;
  for (std::size_t i = 0; i < whole_a.local_size(); ++i) {
    const auto left = static_cast<double>(whole_a.data()[i]);
    dot += left * static_cast<double>(whole_b.data()[i]);
    sum += std::abs(left);
    square += left * left;
    largest = std::max(largest, std::abs(left));
  }
  const auto close = [&](double found, double wanted, double scale, const char* what) {
    findings.expect(std::abs(found - wanted) <= 1e-13 * scale, what, " ", found, " instead of ", wanted);
  };
  close(dot_value(a, b), dot, sum + 1, "dot_value");
  close(norm1_value(a), sum, sum, "norm1_value");
  close(norm2_value(a), std::sqrt(square), std::sqrt(square), "norm2_value");
  findings.expect(norm_max_value(a) == largest, "norm_max_value");
  if constexpr (std::is_same_v<Element, double>) {
    findings.expect(dot_value(a, b) == item(redistribute<Layout<0>>(shardwright::dot(a, b))), "bits of dot");
    findings.expect(norm2_value(a) == item(norm(a)), "bits of norm");
  }
  const auto with = redistribute<Haloed>(a);
  findings.expect(dot_value(with, b) == dot_value(a, b) && dot_value(b, with) == dot_value(b, a),
                  "dot of halos");
  findings.expect(norm1_value(with) == norm1_value(a) && norm2_value(with) == norm2_value(a) &&
                      norm_max_value(with) == norm_max_value(a),
                  "norms of halos");
}

TEST_CASE("dot products and norms are those of the whole tensor") {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            check_numbers<double>(world, {34, 23}, findings);
            check_numbers<float>(world, {34, 23}, findings);
            check_numbers<double>(world, {290, 307}, findings); // several blocks of a sum on each rank
          }) == "");
  }
}

TEST_CASE("norms of empty tensors are 0, and with a NaN are NaN") {
  for (const int ranks : {1, 3}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            const DeviceMesh mesh{world, extent<x>(world.size())};
            using Line = Layout<1, Shard<0, x>>;
            const ShardedTensor<Line, double> none(mesh, {0});
            findings.expect(norm1_value(none) == 0 && norm2_value(none) == 0 && norm_max_value(none) == 0,
                            "none");
            for (const std::int64_t at : {0, 7, 20}) {
              ShardedTensor<Line, double> one(mesh, {21});
              fill(one, -1.0);
              const std::int64_t local = at - one.local_offset()[0];
              if (local >= 0 && local < one.local_shape()[0])
                one.mutable_data()[local] = std::numeric_limits<double>::quiet_NaN();
              findings.expect(std::isnan(norm1_value(one)) && std::isnan(norm2_value(one)) &&
                                  std::isnan(norm_max_value(one)),
                              "NaN at ", at);
            }
          }) == "");
  }
}

TEST_CASE("kernels of absolute values compute the sum and the largest, over several blocks") {
  const Kokkos::Serial execution;
  for (const std::size_t count : {1U, 7U, 8192U, 20003U}) {
    std::vector<float> values(count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(number_at(std::array<std::int64_t, 1>{static_cast<std::int64_t>(i)}, 4));
      sum += std::abs(static_cast<double>(values[i]));
    }
    values[count / 2] = -50; // between the streams and blocks
    sum += 50 - std::abs(number_at(std::array<std::int64_t, 1>{static_cast<std::int64_t>(count / 2)}, 4));
    std::vector<double> workspace(kernels::reduce_workspace(count));
    double result = -1;
    const VectorView<const float> all(values.data(), count);
    const VectorView<double> work(workspace.data(), workspace.size());
    kernels::sum_of_absolutes(execution, all, VectorView<double>(&result, 1), work);
    CHECK(result == sum);
    double signed_sum = 0; // of few whole numbers, so exact
    for (const float one : values)
      signed_sum += static_cast<double>(one);
    kernels::sum_of_elements(execution, all, VectorView<double>(&result, 1), work);
    CHECK(result == signed_sum);
    kernels::largest_absolute(execution, all, VectorView<double>(&result, 1), work);
    CHECK(result == 50);
  }
}

TEST_CASE("axpy and axpby update only owned elements, whichever operand has halos") {
  for (const int ranks : {1, 2, 4, 6}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            const int rows = world.size() == 1 ? 1 : 2;
            const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
            ShardedTensor<Plain, double> from(mesh, {34, 23});
            fill_numbers(from, 1);
            const auto wanted = [](const auto& at, double a, double b) {
              return a * number_at(at, 1) + b * number_at(at, 2);
            };
            const auto check = [&](const auto& source, auto& to, const char* what) {
              for (const double b : {1.0, -0.5, 0.0}) {
                fill_numbers(to, 2);
                if (b == 1)
                  axpy(3, source, to);
                else
                  axpby(3, source, b, to);
                for_each_element(to, [&](std::size_t i, const auto& at, bool own) {
                  if (own)
                    findings.expect(to.data()[i] == wanted(at, 3, b), what, " with ", b);
                });
              }
            };
            const auto haloed = redistribute<Haloed>(from);
            ShardedTensor<Plain, double> plain(mesh, {34, 23});
            ShardedTensor<Haloed, double> with(mesh, {34, 23});
            check(from, plain, "plain to plain");
            check(haloed, plain, "halos to plain");
            check(haloed, with, "halos to halos");
            // Halos of y stay as they were until they are refreshed.
            fill(with, 99);
            check(from, with, "plain to halos");
            for_each_element(with, [&](std::size_t i, const auto&, bool own) {
              findings.expect(own || with.data()[i] == 99, "a halo was written");
            });
            using Box = Layout<3, Shard<0, x, Halo<1>>, Shard<2, y, Halo<1>>>;
            ShardedTensor<WithoutHalos<Box>, double> box(mesh, {8, 3, 10});
            ShardedTensor<Box, double> box_with(mesh, {8, 3, 10});
            fill_numbers(box, 1);
            check(box, box_with, "three dimensions");
          }) == "");
  }
}

TEST_CASE("dot products, norms and updates in steady state allocate nothing") {
  for (const int ranks : {1, 2, 4}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            const int rows = world.size() == 1 ? 1 : 2;
            const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
            ShardedTensor<Haloed, double> p(mesh, {34, 23});
            ShardedTensor<Plain, double> r(mesh, {34, 23});
            fill_numbers(p, 1);
            fill_numbers(r, 2);
            double sum = 0;
            const auto step = [&] {
              refresh_halos(p);
              sum += dot_value(p, r) + norm1_value(r) + norm2_value(p) + norm_max_value(r) + sum_value(p);
              sum += dot_value<OrderedSum>(p, r) + norm2_value<OrderedSum>(p) + sum_value<OrderedSum>(p);
              axpy(0.5, p, r);
              axpby(1, r, 0.25, p);
            };
            step();
            step();
            const std::size_t before = shardwright_test::heap_allocations();
            const std::size_t blocks = mesh.pool_statistics().allocations;
            for (int i = 0; i < 20; ++i)
              step();
            const std::size_t after = shardwright_test::heap_allocations();
            if constexpr (shardwright_test::counts_heap)
              findings.expect(after == before, after - before, " allocations");
            findings.expect(mesh.pool_statistics().allocations == blocks && std::isfinite(sum), "pool");
          }) == "");
  }
}

__extension__ typedef __int128 Wide;

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state ^ state >> 29U;
}

/// A double with a random sign and fraction, and an exponent in [first, first + span).
double random_double(std::uint64_t& state, int first, int span) {
  const double fraction = 1 + std::ldexp(static_cast<double>(next_random(state) >> 12U), -52);
  const auto exponent = first + static_cast<int>(next_random(state) % static_cast<std::uint64_t>(span));
  return std::ldexp(next_random(state) % 2 == 0 ? fraction : -fraction, exponent);
}

ExactSum exactly(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms)
    sum.add(term);
  return sum;
}

TEST_CASE("an exact sum is the sum of integers, rounded once") {
  std::uint64_t state = 5;
  for (int trial = 0; trial < 2000; ++trial) {
    ExactSum sum, first, second;
    Wide wanted = 0; // in units of 2^-52
    const int terms = 1 + trial % 40;
    for (int i = 0; i < terms; ++i) {
      double term = random_double(state, 0, 60);
      if (i + 1 == terms && trial % 3 == 0 && wanted != 0) // cancels all but the last bits
        term = -static_cast<double>(wanted) / 4503599627370496.0;
      const double scaled = std::ldexp(term, 52);
      wanted += static_cast<Wide>(scaled);
      if (std::ldexp(static_cast<double>(static_cast<Wide>(scaled)), -52) != term)
        continue;
      sum.add(term);
      (i % 2 == 0 ? first : second).add(term);
    }
    REQUIRE(sum.value() == std::ldexp(static_cast<double>(wanted), -52));
    second += first;
    REQUIRE(second.value() == sum.value());
  }
}

TEST_CASE("an exact sum does not overflow before its end, and rounds ties to even") {
  constexpr double huge = std::numeric_limits<double>::max();
  constexpr double tiny = std::numeric_limits<double>::denorm_min();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double ulp = std::ldexp(1.0, 971); // of the largest double
  CHECK(exactly({}).value() == 0);
  CHECK(exactly({3.0, -1.0, -2.0}).value() == 0);
  CHECK(exactly({huge, huge, -huge, tiny, -huge}).value() == tiny);
  CHECK(exactly({tiny, tiny, tiny}).value() == 3 * tiny);
  CHECK(exactly({std::ldexp(1.0, -1022), -tiny}).value() == std::ldexp(1.0, -1022) - tiny);
  CHECK(exactly({-huge, -huge}).value() == -infinity);
  CHECK(exactly({huge, ulp / 2}).value() == infinity);
  CHECK(exactly({huge, ulp / 2, -tiny}).value() == huge);
  CHECK(exactly({1.0, std::ldexp(1.0, -53)}).value() == 1.0);
  CHECK(exactly({1.0, std::ldexp(1.0, -53), tiny}).value() == 1.0 + std::ldexp(1.0, -52));
  CHECK(exactly({1.0, std::ldexp(3.0, -53)}).value() == 1.0 + std::ldexp(1.0, -51));
  CHECK(exactly({-1.0, -std::ldexp(1.0, -53), -tiny}).value() == -1.0 - std::ldexp(1.0, -52));
  CHECK(exactly({infinity, huge}).value() == infinity);
  CHECK(exactly({-infinity, huge}).value() == -infinity);
  CHECK(std::isnan(exactly({-infinity, infinity}).value()));
  CHECK(std::isnan(exactly({1.0, std::numeric_limits<double>::quiet_NaN()}).value()));
  ExactSum many; // carries before 64 bits overflow
  for (int i = 0; i < 100; ++i)
    many.add_multiple(std::numeric_limits<std::int64_t>::min(), 900);
  CHECK(many.value() == std::ldexp(-100.0, 963));
}

/// The words of the kernel's sum must be those of a sum number by number.
template <class Terms, class Element>
bool sums_exactly(const std::vector<Element>& x, const std::vector<Element>& y) {
  std::vector<ExactSum> workspace(kernels::exact_sum_workspace(x.size()));
  ExactSum found;
  kernels::exact_sum<Terms>(Kokkos::Serial(), VectorView<const Element>(x.data(), x.size()),
                            VectorView<const Element>(y.data(), y.size()), &found, workspace.data());
  ExactSum wanted;
  for (std::size_t i = 0; i < x.size(); ++i)
    wanted.add(Terms::of(static_cast<double>(x[i]), static_cast<double>(y[i])));
  wanted.normalize();
  return std::memcmp(&found, &wanted, sizeof(found)) == 0;
}

TEST_CASE("the kernel of exact sums keeps every bit") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::uint64_t state = 9;
  const auto numbers = [&](std::size_t count, int first, int span) {
    std::vector<double> out(count);
    for (double& one : out)
      one = random_double(state, first, span);
    return out;
  };
  for (const std::size_t count : {0U, 1U, 31U, 16384U, 16387U, 33000U})
    for (const int span : {1, 20, 70, 100, 900}) { // one window more or less, then number by number
      const auto x = numbers(count, -span / 2, span);
      const auto y = numbers(count, -3, 6);
      CHECK(sums_exactly<kernels::ElementTerms>(x, x));
      CHECK(sums_exactly<kernels::ProductTerms>(x, y));
      const std::vector<float> narrow(x.begin(), x.end());
      CHECK(sums_exactly<kernels::ElementTerms>(narrow, narrow));
      CHECK(sums_exactly<kernels::ProductTerms>(narrow, narrow));
    }
  auto growing = numbers(5000, 0, 3);
  for (std::size_t i = 64; i < growing.size(); ++i)
    growing[i] = std::ldexp(growing[i], static_cast<int>(i / 100)); // beyond what the first 64 suggest
  CHECK(sums_exactly<kernels::ElementTerms>(growing, growing));
  for (const double special : {0.0, -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::max(), -5e-324, 1e-310})
    for (const std::size_t at : {std::size_t{3}, std::size_t{70}, std::size_t{4999}}) {
      auto x = numbers(5000, -2, 4);
      x[at] = special;
      CHECK(sums_exactly<kernels::ElementTerms>(x, x));
      CHECK(sums_exactly<kernels::ProductTerms>(x, std::vector<double>(x.size(), 1.5)));
      CHECK(sums_exactly<kernels::ElementTerms>(std::vector<double>(200, special),
                                                x = std::vector<double>(200)));
    }
  for (const int exponent : {1, 30, 60, 80, 200}) { // cancels what has left the window for a while
    auto x = numbers(5000, -2, 4);
    x[1001] = std::ldexp(1.0, exponent);
    x[1001 + 24] = -x[1001];
    CHECK(sums_exactly<kernels::ElementTerms>(x, x));
    CHECK(sums_exactly<kernels::ProductTerms>(x, std::vector<double>(x.size(), 1.0)));
    CHECK(sums_exactly<kernels::ProductTerms>(x, x));
    x[3000] = std::ldexp(-1.5, -exponent); // smaller than the others
    CHECK(sums_exactly<kernels::ElementTerms>(x, x));
    for (std::size_t i = 0; i < x.size(); i += 3)
      x[i] = 0;
    CHECK(sums_exactly<kernels::ElementTerms>(x, x));
  }
  const std::vector<bfloat16> halves(300, bfloat16(0.1f));
  CHECK(sums_exactly<kernels::ElementTerms>(halves, halves));
  CHECK(sums_exactly<kernels::ProductTerms>(halves, halves));
}

#if defined(__SSE2__)
TEST_CASE("an exact sum keeps subnormal numbers in programs that drop them") {
  std::vector<double> x(700);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = i % 50 == 7 ? std::ldexp(1.0, -1050) : 1 + std::ldexp(static_cast<double>(i), -20);
  const std::vector<double> tiny(x.size(), 0x1p-20); // of which products of the subnormal numbers keep bits
  for (const bool product : {false, true}) {
    ExactSum sums[2];
    for (const bool drop : {false, true}) {
      const unsigned before = __builtin_ia32_stmxcsr();
      __builtin_ia32_ldmxcsr(drop ? before | 0x8040U : before); // as -ffast-math sets it at the start
      ExactSum* const to = &sums[drop ? 1 : 0];
      const VectorView<const double> left(x.data(), x.size());
      if (product) {
        kernels::exact_sum<kernels::ProductTerms>(Kokkos::Serial(), left,
                                                  VectorView<const double>(tiny.data(), tiny.size()), to, to);
      } else {
        kernels::exact_sum<kernels::ElementTerms>(Kokkos::Serial(), left, left, to, to);
      }
      CHECK((__builtin_ia32_stmxcsr() & 0x8040U) == (drop ? 0x8040U : before & 0x8040U));
      __builtin_ia32_ldmxcsr(before);
    }
    CHECK(std::memcmp(&sums[0], &sums[1], sizeof(ExactSum)) == 0);
  }
}
#endif

using Ordered = decltype(shardwright::dot<OrderedSum>(std::declval<const ShardedTensor<Plain, float>&>(),
                                                      std::declval<const ShardedTensor<Haloed, float>&>()));
static_assert(std::is_same_v<Ordered::layout, Layout<0, Partial<OrderedSum, x, y>>>);
static_assert(Transition<Ordered::layout, Layout<0>>::count<AllReduce> == 1);

/// Numbers of one problem: ordered ones, and the ordinary dot product.
using Numbers = std::array<double, 5>;

template <class Element>
Numbers numbers_of(const HostCommunicator& world, std::array<std::int64_t, 2> shape, double special) {
  const int rows = world.size() % 2 == 0 ? world.size() / 2 : world.size();
  const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
  ShardedTensor<Plain, Element> a(mesh, shape);
  ShardedTensor<Plain, Element> b(mesh, shape);
  fill_normal(a, {.seed = 1, .tensor = 0});
  fill_normal(b, {.seed = 1, .tensor = 1});
  if (const auto offset = a.local_offset(); offset[0] == 0 && offset[1] == 0 && special != 0)
    a.mutable_data()[0] = static_cast<Element>(special);
  const double product = dot_value<OrderedSum>(a, b);
  if (shape[0] > 16) { // blocks as wide as halos
    const auto with = redistribute<Haloed>(a);
    REQUIRE(dot_value<OrderedSum>(with, b) == product);
    REQUIRE(sum_value<OrderedSum>(with) == sum_value<OrderedSum>(a));
  }
  const double completed = item(redistribute<Layout<0>>(shardwright::dot<OrderedSum>(a, b))).value();
  REQUIRE(std::memcmp(&product, &completed, sizeof(product)) == 0); // or both are NaN
  return {product, norm2_value<OrderedSum>(a), sum_value<OrderedSum>(a),
          item(redistribute<Layout<0>>(reduce_all<OrderedSum>(b))).value(), dot_value(a, b)};
}

TEST_CASE("ordered dot products, norms and sums have the same bits on 1 to 8 ranks") {
  const auto of_ranks = [](int ranks, std::array<std::int64_t, 2> shape, double special, bool narrow) {
    Numbers found{};
    shardwright_test::launch_ranks({.ranks = ranks}, [&](const HostCommunicator& world) {
      const Numbers own =
          narrow ? numbers_of<float>(world, shape, special) : numbers_of<double>(world, shape, special);
      if (world.rank() == 0)
        found = own;
    });
    return found;
  };
  const auto same = [](const Numbers& left, const Numbers& right) {
    return std::memcmp(left.data(), right.data(), 4 * sizeof(double)) == 0;
  };
  int ordinary = 0;
  for (const bool narrow : {false, true})
    for (const std::array<std::int64_t, 2> shape :
         {std::array<std::int64_t, 2>{83, 61}, std::array<std::int64_t, 2>{3, 5}}) { // and empty blocks
      const Numbers one = of_ranks(1, shape, 0, narrow);
      CHECK(std::abs(one[0] - one[4]) < 1e-11);
      for (int ranks = 2; ranks <= 8; ++ranks) {
        const Numbers many = of_ranks(ranks, shape, 0, narrow);
        CHECK(same(one, many));
        ordinary += one[4] != many[4] ? 1 : 0;
      }
    }
  CHECK(ordinary > 0); // the mesh does change ordinary sums of these numbers
  for (const int ranks : {1, 4}) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Numbers found = of_ranks(ranks, {7, 9}, -infinity, false);
    CHECK((std::isinf(found[0]) && found[1] == infinity && found[2] == -infinity));
    CHECK(std::isnan(of_ranks(ranks, {7, 9}, std::numeric_limits<double>::quiet_NaN(), true)[0]));
  }
}

TEST_CASE("axpy rounds an element alike wherever the vector is cut") {
  const Kokkos::Serial execution;
  std::uint64_t state = 3;
  constexpr std::size_t count = 61;
  std::vector<double> from(count), whole(count);
  for (std::size_t i = 0; i < count; ++i) {
    from[i] = random_double(state, -2, 4);
    whole[i] = random_double(state, -2, 4);
  }
  for (const std::size_t cut : {1U, 7U, 30U, 53U}) {
    std::vector<double> parts = whole;
    std::vector<double> out = whole;
    const auto update = [&](std::vector<double>& y, std::size_t first, std::size_t size) {
      kernels::axpy(execution, 0.3, VectorView<const double>(from.data() + first, size),
                    VectorView<double>(y.data() + first, size));
    };
    update(out, 0, count);
    update(parts, 0, cut);
    update(parts, cut, count - cut);
    CHECK(out == parts);
  }
}

TEST_CASE("ordered products have the same bits on every mesh") {
  const auto of_ranks = [](int ranks) {
    std::vector<float> found;
    shardwright_test::launch_ranks({.ranks = ranks}, [&](const HostCommunicator& world) {
      const int rows = world.size() % 2 == 0 ? world.size() / 2 : world.size();
      const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
      ShardedTensor<Layout<2, Shard<0, x>>> a(mesh, {37, 270});
      ShardedTensor<Layout<2, Shard<1, y>>> b(mesh, {270, 83});
      fill_normal(a, {.seed = 1, .tensor = 0});
      fill_normal(b, {.seed = 1, .tensor = 1});
      const auto product = redistribute<Layout<2>>(matmul<OrderedProducts>(a, b));
      if (world.rank() == 0)
        found.assign(product.data(), product.data() + product.local_size());
    });
    return found;
  };
  const std::vector<float> one = of_ranks(1);
  for (const int ranks : {2, 3, 5, 6})
    CHECK(of_ranks(ranks) == one);
}

TEST_CASE("sums of all elements are those of the whole tensor") {
  CHECK(on_ranks(3, [](const HostCommunicator& world, Findings& findings) {
          const DeviceMesh mesh{world, extent<x>(3), extent<y>(1)};
          ShardedTensor<Plain, float> a(mesh, {290, 107});
          fill_normal(a, {.seed = 1, .tensor = 0}, 0.5);
          const double exact = sum_value<OrderedSum>(a);
          findings.expect(std::abs(sum_value(a) - exact) <= 1e-12 * exact, "sum_value ", sum_value(a));
          findings.expect(exact > 15000 && exact < 16000, "sum ", exact);
          ShardedTensor<Layout<1, Partial<Sum, x>>> parts(mesh, {5});
          ShardedTensor<Layout<1, Shard<0, y>, Partial<Avg, x>>> means(mesh, {5});
          for (std::size_t i = 0; i < 5; ++i)
            parts.mutable_data()[i] = means.mutable_data()[i] = static_cast<float>(world.rank() + 1);
          findings.expect(sum_value(parts) == 30 && sum_value(means) == 10, "sums of Partials");
        }) == "");
}

} // namespace
