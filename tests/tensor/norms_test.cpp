// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/ranks.hpp"
#include "tensor/halo_cases.hpp"

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/norms.hpp>
#include <shardwright/tensor/reduce.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
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
              sum += dot_value(p, r) + norm1_value(r) + norm2_value(p) + norm_max_value(r);
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

} // namespace
