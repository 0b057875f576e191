// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of NeighbourExchange against plain moves between lists, for ranks of any transport.

#include "particles/neighbour_exchange.hpp"
#include "support/counted_transport.hpp"
#include "support/ranks.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace exchange_test {

using namespace shardwright;
using shardwright_test::Counts;
using shardwright_test::Findings;
using Items = std::vector<std::size_t>;
using Rooms = std::vector<std::vector<std::size_t>>;

enum class Neighbours { none, beside, all };
enum class Step { spread, stay, first_to_second, all_to_first };

inline bool are_neighbours(Neighbours kind, std::size_t a, std::size_t b) {
  return kind == Neighbours::all || (kind == Neighbours::beside && (a == b + 1 || b == a + 1));
}

/// Where an item of a rank goes.
inline std::size_t owner_of(Step step, Neighbours kind, std::size_t ranks, std::size_t rank,
                            std::size_t item) {
  std::size_t to = rank;
  if (step == Step::spread)
    to = (item + item / 7) % ranks;
  if (step == Step::first_to_second && rank == 0 && ranks > 1)
    to = 1;
  if (step == Step::all_to_first)
    to = 0;
  return to == rank || are_neighbours(kind, rank, to) ? to : rank;
}

/// Moves the items of all ranks, counts the messages of one of them, and enlarges the rooms.
inline int moved(Step step, Neighbours kind, std::vector<Items>& all, Rooms& rooms, std::size_t of) {
  int messages = 0;
  const std::size_t ranks = all.size();
  std::vector<Items> next(ranks);
  for (std::size_t from = 0; from < ranks; ++from) {
    std::vector<std::size_t> counts(ranks);
    for (const std::size_t item : all[from]) {
      const std::size_t to = owner_of(step, kind, ranks, from, item);
      next[to].push_back(item);
      ++counts[to];
    }
    for (std::size_t to = 0; to < ranks; ++to) {
      if (to == from || !are_neighbours(kind, from, to))
        continue;
      const bool exceeds = counts[to] > rooms[from][to];
      messages += from == of ? 1 + static_cast<int>(exceeds) : 0;
      if (exceeds)
        rooms[from][to] = std::bit_ceil(counts[to]);
    }
  }
  all = next;
  return messages;
}

inline void check_exchange(const HostCommunicator& world, Neighbours kind, Findings& findings) {
  Counts counts;
  const HostCommunicator counted(std::make_shared<shardwright_test::CountedTransport>(world, counts));
  const auto ranks = static_cast<std::size_t>(world.size()), own = static_cast<std::size_t>(world.rank());
  std::vector<bool> neighbours(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    neighbours[r] = are_neighbours(kind, own, r);
  const int others = static_cast<int>(std::count(neighbours.begin(), neighbours.end(), true)) -
                     static_cast<int>(neighbours[own]);
  particles::NeighbourExchange<std::size_t> exchange(counted, neighbours);

  std::vector<Items> all(ranks);
  for (std::size_t item = 0; item < 40 * ranks; ++item)
    all[item / 40].push_back(item);
  Rooms rooms(ranks, std::vector<std::size_t>(ranks));
  Items items = all[own];
  const std::vector steps{Step::spread, Step::stay,         Step::first_to_second, Step::all_to_first,
                          Step::spread, Step::all_to_first, Step::spread,          Step::all_to_first};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const int before = counts.messages;
    exchange(items, [&](std::size_t item) { return owner_of(steps[i], kind, ranks, own, item); });
    const int messages = counts.messages - before;
    const int expected = moved(steps[i], kind, all, rooms, own);
    findings.expect(items == all[own], "items of rank ", own, " of ", ranks, " after step ", i);
    findings.expect(messages == expected, messages, " messages of rank ", own, " of ", ranks, " in step ", i);
    if (steps[i] == Step::stay || (kind == Neighbours::all && i >= 6)) // as many have left before
      findings.expect(messages == others, "one message to each neighbour in step ", i);
    if (steps[i] == Step::first_to_second && kind != Neighbours::none && ranks > 1)
      findings.expect(messages == others + (own == 0 ? 1 : 0), "a second message of one pair");
  }

  const std::size_t stranger = kind == Neighbours::none && ranks > 1 ? (own + 1) % ranks : ranks;
  try {
    exchange(items = {0}, [&](std::size_t) { return stranger; });
    findings.expect(false, "no error for rank ", stranger);
  } catch (const InvalidArgument& error) {
    const std::string part =
        "NeighbourExchange: items must go to this rank or a neighbour, but one goes to rank " +
        std::to_string(stranger);
    findings.expect(std::string(error.what()).find(part) == 0, error.what());
  }
}

/// All checks, on all ranks of a world.
inline void check_exchanges(const HostCommunicator& world, Findings& findings) {
  for (const Neighbours kind : {Neighbours::none, Neighbours::beside, Neighbours::all})
    check_exchange(world, kind, findings);
}

} // namespace exchange_test
