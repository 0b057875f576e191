// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/collective_time.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>

#include <algorithm>
#include <span>

using namespace shardwright;
using shardwright_test::Approx;

namespace {

constexpr ClusterSpec nodes_of_eight() {
  ClusterSpec cluster = cluster_of(chip::h100, 64);
  for (DomainSpec& domain : cluster.domains)
    domain.latency_seconds = 0;
  return cluster;
}

constexpr double gather_seconds(const ClusterSpec& cluster, const AxisGroup& axis, double bytes,
                                const LinkEfficiency& efficiency = {}) {
  detail::MergedGroup group;
  group.add(axis);
  return detail::group_time({cluster, efficiency}, group.all()).seconds(bytes);
}
constexpr double all_to_all_seconds(const ClusterSpec& cluster, const AxisGroup& axis, double bytes,
                                    const TokenCopies& copies) {
  return detail::group_time({cluster, LinkEfficiency{}}, std::span(&axis, 1), &copies).seconds(bytes);
}

constexpr TorusSpan torus_span(const AxisGroup& axis, double chips, int dimensions) {
  return detail::torus_span(axis, detail::torus_side(chips, dimensions), dimensions);
}

} // namespace

TEST_CASE("a gather takes its slowest level", "[collective_time]") {
  const ClusterSpec cluster = nodes_of_eight();
  // Inside a node: (N - 1) / N of the bytes at 450 GB/s.
  CHECK(gather_seconds(cluster, {8, 1}, 8e9) == Approx(7e9 / 450e9));
  // One rank of each of eight nodes: everything goes through one port of 50 GB/s.
  CHECK(gather_seconds(cluster, {8, 8}, 8e9) == Approx(7e9 / 50e9));
  // All 64: rings through the eight ports of every node, which are still slower than NVLink.
  CHECK(gather_seconds(cluster, {64, 1}, 64e9) == Approx(63e9 / (8 * 50e9)));
  // Two ranks of each node, four ranks apart.
  CHECK(gather_seconds(cluster, {16, 4}, 16e9) == Approx(15e9 / (2 * 50e9)));
  // Two nodes: a ring sends almost all bytes over the ports, though half of them would do.
  CHECK(gather_seconds(cluster, {16, 1}, 16e9) == Approx(15e9 / (8 * 50e9)));
  CHECK(gather_seconds(cluster, {1, 1}, 16e9) == 0);
}

TEST_CASE("a group is in a domain completely, or with as many members as fit", "[collective_time]") {
  const ClusterSpec cluster = nodes_of_eight();
  for (const double stride : {1.0, 2.0, 4.0, 8.0, 16.0})
    for (const double extent : {2.0, 4.0, 8.0, 16.0}) {
      if (extent * stride > 64)
        continue;
      const AxisGroup axis{extent, stride};
      double members = 1, in_first = 1;
      detail::for_each_level({cluster, LinkEfficiency{}}, std::span(&axis, 1), extent,
                             [&](const detail::GroupLevel& level) {
                               in_first = level.inside == 1 ? level.parts : in_first;
                               members *= level.parts;
                             });
      CAPTURE(stride, extent);
      CHECK(members == extent);
      // Counted rank by rank: the ranks of the group in the node of rank 0.
      int inside = 0;
      for (int member = 0; member < static_cast<int>(extent); ++member)
        inside += member * static_cast<int>(stride) < 8 ? 1 : 0;
      CHECK((inside == 1 || in_first == inside));
    }
}

TEST_CASE("a group takes as long as the one that straddles domains worst", "[collective_time]") {
  int straddling = 0;
  for (const int chips : {6, 8, 9, 16, 72})
    for (int stride = 1; stride <= chips; stride *= chips % (2 * stride) == 0 ? 2 : 3)
      for (int extent = 2; extent <= 24 && chips % stride == 0; ++extent) {
        // Counted over every group until groups and domains begin together again.
        int least = extent, most = 0;
        for (int first = 0; first < extent * stride * chips; first += extent * stride) {
          int inside = 1, crossed = 0;
          for (int member = 1; member <= extent; ++member) {
            const int domain = (first + (member - 1) * stride) / chips;
            if (member < extent && (first + member * stride) / chips == domain) {
              ++inside;
              continue;
            }
            least = std::min(least, inside);
            inside = 1;
            crossed += member < extent ? 1 : 0;
          }
          most = std::max(most, crossed);
        }
        CAPTURE(chips, stride, extent);
        const AxisGroup axis{static_cast<double>(extent), static_cast<double>(stride)};
        const double inside = detail::least_inside(axis, chips);
        REQUIRE(inside == least);
        REQUIRE(detail::most_crossed(axis, inside, chips) == most);
        straddling += extent % least != 0 || most + 1 < extent / least ? 1 : 0;
      }
  CHECK(straddling > 100);
  const ClusterSpec cluster = nodes_of_eight();
  // Of five ranks, one is alone in its node: its port carries the ring, and most of what it sends to experts.
  CHECK(gather_seconds(cluster, {5, 1}, 5e9) == Approx(4e9 / 50e9));
  CHECK(gather_seconds(cluster, {6, 1}, 6e9) == Approx(5e9 / (2 * 50e9)));
  CHECK(gather_seconds(cluster, {10, 1}, 10e9) == Approx(9e9 / (2 * 50e9)));
  CHECK(all_to_all_seconds(cluster, {6, 1}, 6e9, {1, 0, 0, false}) == Approx(4e9 / 50e9));
  // One copy to the other node, if any of two experts is there.
  CHECK(all_to_all_seconds(cluster, {6, 1}, 6e9, 2) == Approx(6e9 / 2 * (1 - 1.0 / 9) / 50e9));
}

TEST_CASE("outside its domain a gather takes longer, the more domains it spans", "[collective_time]") {
  const ClusterSpec cluster = cluster_of(chip::h100, 1024);
  const auto per_byte = [&](double ranks, double falls) {
    const AxisGroup group{ranks, 1};
    return detail::group_time({cluster, LinkEfficiency{1, 1, falls}}, {&group, 1}).per_byte;
  };
  CHECK(per_byte(8, 0.1) == per_byte(8, 0));
  CHECK(per_byte(16, 0.1) == Approx(1.1 * per_byte(16, 0)));
  CHECK(per_byte(128, 0.1) == Approx(1.4 * per_byte(128, 0)));
  CHECK(per_byte(1024, 0.1) == Approx(1.7 * per_byte(1024, 0)));
}

TEST_CASE("efficiency and latency count", "[collective_time]") {
  ClusterSpec cluster = cluster_of(chip::h100, 64);
  CHECK(gather_seconds(cluster, {8, 1}, 8e9, {0.5, 1}) == Approx(7e9 / 225e9 + 7e-6));
  CHECK(gather_seconds(cluster, {8, 8}, 0, {1, 0.5}) == Approx(7 * 3.5e-6));
}

TEST_CASE("an all-to-all sends one copy of a token to a domain", "[collective_time]") {
  const ClusterSpec cluster = nodes_of_eight();
  CHECK(all_to_all_seconds(cluster, {8, 1}, 8e9, 8) == Approx(7e9 / 450e9));
  // Eight experts of a token over eight nodes: 8 (1 - (7/8)^8) nodes on average, an eighth of which are its
  // own.
  double none = 1;
  for (int i = 0; i < 8; ++i)
    none *= 7.0 / 8;
  CHECK(all_to_all_seconds(cluster, {64, 1}, 8e9, 8) == Approx(8e9 * (1 - none) * (7.0 / 8) / 50e9));
  // Routing that is limited to four nodes sends no more copies than that.
  CHECK(all_to_all_seconds(cluster, {64, 1}, 8e9, {8, 4}) == Approx(8e9 * 4.0 / 8 * (7.0 / 8) / 50e9));
  // One expert per token goes to one node.
  CHECK(all_to_all_seconds(cluster, {64, 1}, 8e9, 1) == Approx(8e9 * (7.0 / 8) / 50e9));
}

TEST_CASE("a group on a torus has the links of the dimensions along which it is laid out",
          "[collective_time]") {
  STATIC_REQUIRE(torus_span({16, 1}, 256, 2).dimensions == 1);
  STATIC_REQUIRE(torus_span({17, 1}, 256, 2).dimensions == 2);
  STATIC_REQUIRE(torus_span({8, 1}, 512, 3).dimensions == 1);
  STATIC_REQUIRE(torus_span({64, 1}, 512, 3).dimensions == 2);
  STATIC_REQUIRE(torus_span({65, 1}, 512, 3).dimensions == 3);
  // Outside another axis: the rest of the dimension in which that axis ends, with shared links, and whole
  // dimensions.
  STATIC_REQUIRE(torus_span({4, 2}, 512, 3).dimensions == 1);
  STATIC_REQUIRE(torus_span({4, 2}, 512, 3).lines == 0.5);
  STATIC_REQUIRE(torus_span({32, 2}, 512, 3).dimensions == 2);
  CHECK(torus_span({32, 2}, 512, 3).lines == Approx(1.5));
  CHECK(torus_span({64, 8}, 512, 3).lines == Approx(2));
  const ClusterSpec slice = cluster_of(chip::tpu_v5e, 256);
  const double all = gather_seconds(slice, {256, 1}, 1e9);
  CHECK(all == Approx(1e9 * (255.0 / 256) / 180e9 + 255e-6));
  const double line = gather_seconds(slice, {16, 1}, 1e9);
  CHECK(line == Approx(1e9 * (15.0 / 16) / 90e9 + 15e-6));
  // A line of 16: each byte passes a quarter of it.
  CHECK(all_to_all_seconds(slice, {16, 1}, 1e9, 1) == Approx(1e9 * (15.0 / 16) * 4 / 90e9 + 15e-6));
}
