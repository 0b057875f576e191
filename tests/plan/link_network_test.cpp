// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/simulate/link_network.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <map>
#include <vector>

using namespace shardwright;
using shardwright_test::Approx;

namespace {

/// End times of all transfers, by number, once no more begin.
std::map<int, double> ends_of(EventQueue& events, LinkNetwork& network) {
  std::map<int, double> ends;
  for (SimulationEvent event; events.take(event);)
    if (network.end(event))
      ends[event.subject] = event.time;
  return ends;
}

} // namespace

TEST_CASE("transfers share a link as they start and end", "[link_network]") {
  EventQueue events;
  LinkNetwork network(events, true);
  const int link = network.add_link(1);
  const int first = network.begin(0, 2, {{link, 1}});
  const int second = network.begin(1, 2, {{link, 1}});
  // The first has 1 left at 1 and half the link until 3; then the second has 1 left and all of it.
  const auto ends = ends_of(events, network);
  CHECK(ends.at(first) == Approx(3));
  CHECK(ends.at(second) == Approx(4));
}

TEST_CASE("speeds are max-min fair", "[link_network]") {
  // Bertsekas and Gallager's kind of example: one transfer over both links, two on the first, one on the
  // second. The first link gives each of its three transfers a third; on the second, two thirds are left for
  // the last one.
  EventQueue events;
  LinkNetwork network(events, true);
  const int left = network.add_link(1), right = network.add_link(1);
  const int both = network.begin(0, 1, {{left, 1}, {right, 1}});
  const int a = network.begin(0, 1, {{left, 1}});
  const int b = network.begin(0, 1, {{left, 1}});
  const int last = network.begin(0, 1, {{right, 1}});
  const auto ends = ends_of(events, network);
  CHECK(ends.at(last) == Approx(1.5));
  CHECK(ends.at(both) == Approx(3));
  CHECK(ends.at(a) == Approx(3));
  CHECK(ends.at(b) == Approx(3));
}

TEST_CASE("a link with enough capacity slows nothing, and a slow one only its own transfers",
          "[link_network]") {
  EventQueue events;
  LinkNetwork network(events, true);
  const int wide = network.add_link(1), slow = network.add_link(0.25);
  const int half = network.begin(0, 1, {{wide, 0.5}});
  const int other = network.begin(0, 1, {{wide, 0.5}});
  const int slowed = network.begin(0, 1, {{slow, 0.5}});
  const auto ends = ends_of(events, network);
  CHECK(ends.at(half) == 1); // to the bit
  CHECK(ends.at(other) == 1);
  CHECK(ends.at(slowed) == Approx(2));
}

TEST_CASE("spare capacity of a link goes to the transfers that can use it", "[link_network]") {
  EventQueue events;
  LinkNetwork network(events, true);
  const int shared = network.add_link(1), narrow = network.add_link(0.2);
  const int held = network.begin(0, 1, {{shared, 1}, {narrow, 1}}); // at 0.2
  const int free = network.begin(0, 0.8, {{shared, 1}});            // at 0.8, not at a half
  const auto ends = ends_of(events, network);
  CHECK(ends.at(free) == Approx(1));
  CHECK(ends.at(held) == Approx(5));
}

TEST_CASE("without contention every transfer has its links to itself", "[link_network]") {
  EventQueue events;
  LinkNetwork network(events, false);
  const int link = network.add_link(1), slow = network.add_link(0.5);
  std::vector<int> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(network.begin(i, 1, {{link, 1}}));
  const int slowed = network.begin(0, 1, {{slow, 1}});
  const auto ends = ends_of(events, network);
  for (int i = 0; i < 5; ++i)
    CHECK(ends.at(all[static_cast<std::size_t>(i)]) == i + 1);
  CHECK(ends.at(slowed) == 2);
}

TEST_CASE("chips of one generation have the peaks of their silicon, and each is found by its name") {
  CHECK(chip::a100_40.peak_bf16 == chip::a100_80.peak_bf16);
  CHECK(2 * chip::a100_40.memory_bytes == chip::a100_80.memory_bytes);
  CHECK(chip::h200.peak(Precision::fp8) == chip::h100.peak(Precision::fp8));
  CHECK(chip::h200.memory_bytes == 141e9);
  CHECK(chip::h100_96.sustained < chip::h100.sustained);
  CHECK(chip::b300.peak(Precision::fp4) == Approx(1.5 * chip::b200.peak(Precision::fp4)));
  CHECK(chip::tpu_v6e.torus_dimensions == chip::tpu_v5e.torus_dimensions);
  CHECK(chip::tpu_7x.peak(Precision::fp8) == 2 * chip::tpu_7x.peak_bf16);
  for (const ChipSpec& chip : chip_catalogue) {
    INFO(chip.name);
    REQUIRE(find_chip(chip.name) != nullptr);
    CHECK(find_chip(chip.name)->memory_bandwidth == chip.memory_bandwidth);
  }
}
