// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::launch_ranks;
using shardwright_test::on_ranks;

/// Scatters, checks the block and gathers, with every root.
template <class L, class Element, std::size_t rank>
std::string check_round_trip(int d, int t, const std::array<std::int64_t, rank>& shape) {
  return on_ranks(d * t, [&](HostCommunicator world, Findings& findings) {
    const DeviceMesh mesh{world, extent<dp>(d), extent<tp>(t)};
    const std::size_t count = detail::product(shape);
    std::vector<Element> numbers(count);
    std::iota(numbers.begin(), numbers.end(), Element(1));
    for (int root = 0; root < world.size(); ++root) {
      const std::vector<Element> data = world.rank() == root ? numbers : std::vector<Element>();
      const auto tensor = scatter<L>(mesh, root, data, shape);
      // The replicated tensor is a second path to every element.
      const auto all = redistribute<Layout<static_cast<int>(rank)>>(tensor);
      findings.expect(std::equal(numbers.begin(), numbers.end(), all.data()), "scatter from ", root);
      const std::vector<Element> back = gather(tensor, (root + 1) % world.size());
      findings.expect(back == (world.rank() == (root + 1) % world.size() ? numbers : std::vector<Element>()),
                      "gather, rank ", world.rank());
    }
  });
}

} // namespace

TEST_CASE("gather inverts scatter for every root") {
  CHECK(check_round_trip<Layout<1, Shard<0, tp, dp>>, float>(2, 3, std::array<std::int64_t, 1>{13}) == "");
  CHECK(check_round_trip<Layout<2, Shard<0, dp>, Shard<1, tp>>, double>(
            2, 2, std::array<std::int64_t, 2>{5, 7}) == "");
  CHECK(check_round_trip<Layout<2, Shard<1, tp>>, std::int32_t>(2, 2, std::array<std::int64_t, 2>{5, 3}) ==
        "");
  CHECK(check_round_trip<Layout<3, Shard<1, dp>, Shard<2, tp>>, float>(
            2, 4, std::array<std::int64_t, 3>{2, 3, 5}) == "");
  CHECK(check_round_trip<Layout<3>, float>(1, 1, std::array<std::int64_t, 3>{2, 3, 5}) == "");
}

TEST_CASE("ranks without elements take part in nothing") {
  CHECK(check_round_trip<Layout<2, Shard<0, dp>>, float>(4, 1, std::array<std::int64_t, 2>{2, 3}) == "");
  CHECK(check_round_trip<Layout<2, Shard<0, dp>>, float>(2, 1, std::array<std::int64_t, 2>{0, 3}) == "");
}

TEST_CASE("a wrong root or data of the wrong size is rejected, and wakes the others") {
  LaunchOptions options;
  options.ranks = 2;
  options.deadline = std::chrono::seconds(10);
  std::string message;
  try {
    launch_ranks(options, [](HostCommunicator world) {
      const DeviceMesh mesh{world, extent<dp>(2)};
      static_cast<void>(scatter<Layout<1, Shard<0, dp>>>(mesh, 0, std::vector<float>(5), {6}));
    });
  } catch (const InvalidArgument& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("must hold the 6 elements of the shape [6], but it holds 5"));
  CHECK_THAT(message, ContainsSubstring("scatter_gather_test.cpp:"));
  CHECK_THROWS_AS(launch_ranks(options,
                               [](HostCommunicator world) {
                                 const DeviceMesh mesh{world, extent<dp>(2)};
                                 const ShardedTensor<Layout<1, Shard<0, dp>>> tensor(mesh, {4});
                                 static_cast<void>(gather(tensor, 2));
                               }),
                  InvalidArgument);
}

TEST_CASE("random fills do not depend on the mesh or the layout") {
  std::vector<float> uniform;
  std::vector<double> normal;
  const auto check = [&](auto layout, int d, int t) {
    using L = typename decltype(layout)::type;
    CHECK(on_ranks(d * t, [&](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(d), extent<tp>(t)};
            ShardedTensor<L> first(mesh, {23, 9});
            ShardedTensor<L, double> second(mesh, {23, 9});
            fill_uniform(first, {11, 3}, -2.0, 2.0);
            fill_normal(second, {11, 4}, 1.0, 0.5);
            const auto all = gather(first, 0);
            const auto all_normal = gather(second, 0);
            if (world.rank() != 0)
              return;
            if (uniform.empty()) {
              uniform = all;
              normal = all_normal;
            }
            findings.expect(all == uniform && all_normal == normal, "the same numbers");
          }) == "");
  };
  check(std::type_identity<Layout<2>>{}, 1, 1);
  check(std::type_identity<Layout<2, Shard<0, dp>, Shard<1, tp>>>{}, 2, 2);
  check(std::type_identity<Layout<2, Shard<1, tp, dp>>>{}, 2, 3);
  REQUIRE(uniform.size() == 23 * 9);
  double mean = 0;
  for (const float value : uniform) {
    CHECK((value > -2.0f && value < 2.0f));
    mean += static_cast<double>(value) / static_cast<double>(uniform.size());
  }
  CHECK(std::abs(mean) < 0.4);
  double mean_normal = 0;
  for (const double value : normal)
    mean_normal += value / static_cast<double>(normal.size());
  CHECK(std::abs(mean_normal - 1.0) < 0.2);
}
