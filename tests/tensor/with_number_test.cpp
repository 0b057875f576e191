// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/elementwise/with_number.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;

using Rows = sw::Layout<1, sw::Shard<0, dp>>;

/// This rank's elements.
template <class Tensor> std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> out;
  for (std::size_t i = 0; i < tensor.local_size(); ++i)
    out.push_back(static_cast<double>(tensor.data()[i]));
  return out;
}
template <class Element>
sw::ShardedTensor<Rows, Element> counted(const sw::DeviceMesh<dp>& mesh, Element first) {
  sw::ShardedTensor<Rows, Element> out(mesh, {6});
  for (std::size_t i = 0; i < out.local_size(); ++i)
    out.mutable_data()[i] = static_cast<Element>(first + static_cast<Element>(i));
  return out;
}
using Values = std::vector<double>;

} // namespace

TEST_CASE("a tensor and a number have all four operators in both orders") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(2));
          const auto x = counted<double>(mesh, 1);
          findings.expect(numbers_of(x + 0.5) == Values{1.5, 2.5, 3.5}, "x + n");
          findings.expect(numbers_of(2 + x) == Values{3, 4, 5}, "n + x");
          findings.expect(numbers_of(x - 0.5) == Values{0.5, 1.5, 2.5}, "x - n");
          findings.expect(numbers_of(1 - x) == Values{0, -1, -2}, "n - x");
          findings.expect(numbers_of(x * 2) == Values{2, 4, 6}, "x * n");
          findings.expect(numbers_of(0.5F * x) == Values{0.5, 1, 1.5}, "n * x");
          findings.expect(numbers_of(x / 2) == Values{0.5, 1, 1.5}, "x / n");
          findings.expect(numbers_of(6.0 / x) == Values{6, 3, 2}, "n / x");
          const auto narrow = counted<sw::bfloat16>(mesh, sw::bfloat16(1));
          findings.expect(numbers_of(3 / (narrow + 1.0)) == Values{1.5, 1, 0.75}, "16 bits");
          sw::ShardedTensor<sw::Layout<0, sw::Partial<sw::Sum, dp>>, double> part(mesh, {});
          part.mutable_data()[0] = 4;
          findings.expect(numbers_of(-part / 2.0) == Values{-2}, "Partial / n");
          findings.expect(numbers_of(x * sw::PerRank<dp>(1 + mesh.coordinate<dp>())) ==
                              (world.rank() == 0 ? Values{1, 2, 3} : Values{2, 4, 6}),
                          "a number of each rank");
        }) == "");
}

TEST_CASE("integers take whole numbers, wrap, and are rounded towards zero when they are divided") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(2));
          const auto x = counted<std::int32_t>(mesh, -3);
          findings.expect(numbers_of(x * 3) == Values{-9, -6, -3}, "x * n");
          findings.expect(numbers_of(x / 2) == Values{-1, -1, 0}, "x / n");
          findings.expect(numbers_of(x + 10) == Values{7, 8, 9}, "x + n");
          findings.expect(numbers_of(10 - x) == Values{13, 12, 11}, "n - x");
          findings.expect(numbers_of(-x) == Values{3, 2, 1}, "-x");
          constexpr std::int64_t wide = (std::int64_t{1} << 53) + 1; // no double
          const auto large = counted<std::int64_t>(mesh, 1) * wide;
          findings.expect(large.data()[0] == wide, "beyond 53 bits");
          constexpr auto least = std::numeric_limits<std::int32_t>::min();
          findings.expect((counted<std::int32_t>(mesh, least) / -1).data()[0] == least, "the least number");
          const auto bytes = counted<unsigned char>(mesh, 250);
          findings.expect(numbers_of(bytes + 5) == Values{255, 0, 1}, "a byte wraps");
          findings.expect(numbers_of(counted<std::uint32_t>(mesh, 1) - 2)[0] == 4294967295.0,
                          "an unsigned number wraps");
          auto filled = counted<std::int32_t>(mesh, 0);
          sw::fill(filled, 7);
          sw::scale_in_place(filled, -2);
          findings.expect(numbers_of(filled) == Values{-14, -14, -14}, "fill and scale_in_place");
        }) == "");
}

TEST_CASE("ranks have no average of integers") {
  const auto outcomes = rank_outcomes::of(2, rank_outcomes::ample, [](sw::HostCommunicator world) {
    std::vector<std::int32_t> counts{world.rank() + 1};
    world.all_reduce_in_place(counts, sw::ReduceOp::average);
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(
        rank_outcomes::text<sw::InvalidArgument>(outcome),
        ContainsSubstring("all_reduce: an average must be of floating-point elements, but these are int32 "
                          "(reduce them with ReduceOp::sum, and divide the sum)"));
}

TEST_CASE("ranks have an ordered sum of integers, and none of rounded numbers") {
  const auto outcomes = rank_outcomes::of(2, rank_outcomes::ample, [](sw::HostCommunicator world) {
    std::vector<std::int64_t> words{world.rank() + 1, -5};
    world.all_reduce_in_place(words, sw::ReduceOp::ordered_sum);
    if (words == std::vector<std::int64_t>{3, -10}) {
      std::vector<float> parts{0.1f};
      world.all_reduce_in_place(parts, sw::ReduceOp::ordered_sum);
    }
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(rank_outcomes::text<sw::InvalidArgument>(outcome),
               ContainsSubstring(
                   "all_reduce: an ordered sum must be of integers, because the rounding of float32 depends "
                   "on the order (reduce them with ReduceOp::sum, or the words of an ExactSum)"));
}

TEST_CASE("a number that an integer element cannot hold and a divisor of 0 are errors with the line") {
  const auto said = [](auto change) {
    return rank_outcomes::text<sw::InvalidArgument>(
        rank_outcomes::of(1, rank_outcomes::ample, [&](const sw::HostCommunicator& world) {
          const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(1));
          auto x = counted<std::int32_t>(mesh, 1);
          change(x);
        })[0]);
  };
  CHECK_THAT(said([](auto& x) { static_cast<void>(x + 5'000'000'000); }),
             ContainsSubstring(
                 "Operation: a number must fit the tensor's element, but 5000000000 does not fit int32 "
                 "(use a wider element)") &&
                 ContainsSubstring("with_number_test.cpp:"));
  CHECK_THAT(said([](auto& x) { sw::fill(x, std::numeric_limits<std::uint64_t>::max()); }),
             ContainsSubstring("18446744073709551615 does not fit int32"));
  CHECK_THAT(said([](auto& x) { static_cast<void>(x / 0); }),
             ContainsSubstring("divide: integers must not be divided by 0 (check the divisor)") &&
                 ContainsSubstring("with_number_test.cpp:"));
}
