// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/logged.hpp"
#include "support/ranks.hpp"

#include <shardwright/train/dry_run/recording_transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// A rank without its peers, compared with the same program on ranks that exist.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::GroupPlace;

/// Groups with and without a name, two of the same ranks, and every kind of call; the data is not checked.
void program(sw::HostCommunicator world) {
  const int ranks = world.size();
  const int rank = world.rank();
  const auto count = static_cast<std::size_t>(ranks);
  sw::HostCommunicator halves = world.split_by(
      [](int each) {
        return GroupPlace{each % 2, -each};
      },
      "halves");
  sw::HostCommunicator again = world.split_by([](int each) { return GroupPlace{each % 2, -each}; });
  const sw::HostCommunicator few = world.split_by([](int each) {
    return GroupPlace{each == 0 ? -1 : 3, each};
  });
  sw::HostCommunicator alone = halves.split_by([](int each) { return GroupPlace{each, 0}; });

  std::vector<double> numbers(6 * count);
  std::vector<std::int32_t> part(3);
  std::vector<std::int32_t> parts(3 * count);
  world.all_reduce_in_place(numbers);
  halves.all_reduce_in_place(numbers, sw::ReduceOp::maximum);
  world.all_gather(part, parts);
  world.reduce_scatter(parts, part);
  // Uneven blocks: 1, 2, ... elements.
  std::vector<std::size_t> counts;
  for (std::size_t each = 0; each < count; ++each)
    counts.push_back(each + 1);
  std::vector<float> own(counts[static_cast<std::size_t>(rank)]);
  std::vector<float> all(count * (count + 1) / 2);
  world.all_gather(own, all, std::span<const std::size_t>(counts));
  world.all_to_all(numbers, std::vector<double>(numbers.size()));
  again.broadcast(part, again.size() - 1);
  world.async().all_reduce_in_place(part).wait();
  if (ranks > 1) {
    const int to = (rank + 1) % ranks;
    const int from = (rank + ranks - 1) % ranks;
    sw::Pending sent = world.async().send(part, to, 7);
    world.receive(std::span(parts).first(part.size()), from, 7);
    sent.wait();
  }
  alone.barrier();
  world.barrier();
  if (few.valid())
    sw::HostCommunicator(few).broadcast(part, 0);
}

} // namespace

TEST_CASE("a pretended rank makes the same calls as a real one, on groups with the same names and ids") {
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, [ranks](sw::HostCommunicator world, Findings& findings) {
            const auto real = std::make_shared<sw::CallLog>();
            const auto pretended = std::make_shared<sw::CallLog>();
            program(shardwright_test::logged(world, real));
            program(sw::recording_world(ranks, world.rank(), pretended));
            findings.expect(real->calls().size() >= 10, real->calls().size(), " calls");
            findings.expect(real->calls() == pretended->calls(), "the calls of rank ", world.rank());
            findings.expect(real->groups().size() == pretended->groups().size(), "the groups");
            for (std::size_t i = 0; i < real->groups().size(); ++i)
              findings.expect(real->groups()[i].id == pretended->groups()[i].id &&
                                  real->groups()[i].name == pretended->groups()[i].name,
                              "group ", real->groups()[i].name, " and ", pretended->groups()[i].name);
          }) == "");
}

TEST_CASE("a group has the same id on all its ranks, and every group a different one") {
  const auto logs = [] {
    std::vector<std::shared_ptr<sw::CallLog>> out;
    for (int rank = 0; rank < 4; ++rank) {
      out.push_back(std::make_shared<sw::CallLog>());
      program(sw::recording_world(4, rank, out.back()));
    }
    return out;
  }();
  // world, halves, again; the group of all but the first rank, and each rank alone.
  REQUIRE(logs[0]->groups().size() == 4);
  REQUIRE(logs[1]->groups().size() == 5);
  for (const std::size_t group : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    CHECK(logs[0]->groups()[group].id == logs[2]->groups()[group].id);
    CHECK(logs[1]->groups()[group].id == logs[3]->groups()[group].id);
    CHECK((logs[0]->groups()[group].id == logs[1]->groups()[group].id) == (group == 0));
  }
  CHECK(logs[0]->groups()[1].id != logs[0]->groups()[2].id);
  CHECK(logs[1]->groups()[3].id == logs[2]->groups()[3].id);
  CHECK(logs[1]->groups()[4].id != logs[2]->groups()[4].id);
}

TEST_CASE("a pretended rank's numbers take the place of all ranks' numbers") {
  const auto log = std::make_shared<sw::CallLog>();
  sw::HostCommunicator world = sw::recording_world(3, 1, log);
  CHECK(world.size() == 3);
  CHECK(world.rank() == 1);
  const std::array<float, 2> own{1.5F, -2};
  std::array<float, 6> all{};
  world.all_gather(own, all);
  CHECK(all == std::array<float, 6>{1.5F, -2, 1.5F, -2, 1.5F, -2});
  std::array<std::int64_t, 2> sums{4, -1};
  world.all_reduce_in_place(sums);
  CHECK(sums == std::array<std::int64_t, 2>{12, -3});
  std::array<double, 1> most{0.5};
  world.all_reduce_in_place(most, sw::ReduceOp::maximum);
  CHECK(most[0] == 0.5);
  std::array<double, 6> in{1, 2, 3, 4, 5, 6};
  std::array<double, 2> block{};
  world.reduce_scatter(in, block);
  CHECK(block == std::array<double, 2>{9, 12});
  std::array<double, 6> out{};
  world.all_to_all(in, out);
  CHECK(out == in);
  world.broadcast(block, 2);
  CHECK(block == std::array<double, 2>{9, 12});
  world.receive(block, 0);
  CHECK(block == std::array<double, 2>{0, 0});
  sw::Pending pending = world.async().all_reduce_in_place(sums);
  CHECK(pending.ready());
  pending.wait();
  CHECK(log->calls().size() == 8);
  CHECK(log->calls().back().started);
  CHECK_FALSE(log->calls().front().started);
  CHECK(log->calls()[0].bytes == sizeof all);
  CHECK(log->calls()[6].peer == 0);

  // Memory that does not exist is not touched.
  auto* const nowhere = static_cast<float*>(sw::detail::unmapped_memory(1 << 20));
  world.all_reduce_in_place(std::span<float>(nowhere, 1 << 18));
  CHECK(log->calls().back().bytes == 1 << 20);
  CHECK(sw::detail::is_unmapped(nowhere));
  CHECK_FALSE(sw::detail::is_unmapped(&log));
}

TEST_CASE("what a rank without peers cannot know is named") {
  const auto log = std::make_shared<sw::CallLog>();
  sw::HostCommunicator world = sw::recording_world(4, 2, log);
  CHECK(has(failure_of<sw::InvalidArgument>([&] { static_cast<void>(world.split(0, 0)); }),
            "in a world without peers, all colours must follow from a rule (use split_by)"));
  CHECK_FALSE(world.split(-1, 0).valid());
  CHECK_FALSE(world.split_by([](int rank) { return GroupPlace{rank == 2 ? -1 : 0, 0}; }).valid());
  for (const int rank : {-1, 4})
    CHECK(has(failure_of<sw::InvalidArgument>([&] { static_cast<void>(sw::recording_world(4, rank, log)); }),
              "the rank must be at least 0 and below the number of ranks, but rank " + std::to_string(rank) +
                  " of 4"));
}
