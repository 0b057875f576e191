// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/token_order.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace shardwright;

static_assert(TokenOrder<NaturalOrder> && TokenOrder<ZigZagOrder>);
// Sequence of 12 over 3 ranks: chunks of 2, the first and the last to rank 0.
static_assert(ZigZagOrder::runs(12, 3, 0) == TokenRuns{.rows = 4, .split = 2, .first = 0, .second = 10});
static_assert(ZigZagOrder::runs(12, 3, 2) == TokenRuns{.rows = 4, .split = 2, .first = 4, .second = 6});
static_assert(NaturalOrder::runs(5, 2, 1) == TokenRuns::one(2, 3));
static_assert(ZigZagOrder::runs(5, 1, 0) == NaturalOrder::runs(5, 1, 0));
static_assert(ZigZagOrder::divisor(4) == 8 && ZigZagOrder::divisor(1) == 1 && NaturalOrder::divisor(4) == 1);

/// Keys that the queries of a rank see of the keys of another.
template <class Order> std::size_t pairs(std::int64_t sequence, int ranks, int of, int from) {
  const TokenRuns queries = Order::runs(sequence, ranks, of), keys = Order::runs(sequence, ranks, from);
  std::size_t count = 0;
  for (std::size_t row = 0; row < queries.rows; ++row)
    count += keys.rows_before(queries.position(row) + 1);
  return count;
}

template <class Order> void check_order(std::int64_t sequence, int ranks) {
  std::vector<bool> seen(static_cast<std::size_t>(sequence));
  std::size_t gathered = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const TokenRuns runs = Order::runs(sequence, ranks, rank);
    REQUIRE(runs.end() == (runs.rows == 0 ? 0 : runs.position(runs.rows - 1) + 1));
    for (std::size_t row = 0; row < runs.rows; ++row, ++gathered) {
      const std::size_t position = runs.position(row);
      REQUIRE(position < seen.size());
      REQUIRE(!seen[position]);
      seen[position] = true;
      REQUIRE(row_of<Order>(position, sequence, ranks) == gathered);
    }
    for (std::size_t position = 0; position <= seen.size(); ++position) {
      std::size_t before = 0;
      for (std::size_t row = 0; row < runs.rows; ++row)
        before += runs.position(row) < position ? 1 : 0;
      REQUIRE(runs.rows_before(position) == before);
    }
  }
  REQUIRE(gathered == seen.size());
  const RowOrder order = Order::rows(sequence, ranks);
  for (std::size_t row = 0; row < 2 * seen.size(); ++row) { // of two sequences
    const std::size_t before = row / seen.size() * seen.size();
    REQUIRE(row_of<Order>(order.position(row) - before, sequence, ranks) == row - before);
  }
}

} // namespace

TEST_CASE("every position has one row, in every order") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t sequence = 0; sequence <= 30; ++sequence) {
      check_order<NaturalOrder>(sequence, ranks);
      if (sequence % ZigZagOrder::divisor(ranks) == 0)
        check_order<ZigZagOrder>(sequence, ranks);
    }
}

TEST_CASE("in zig-zag order every rank sees equally many keys in each step of the ring") {
  for (int ranks = 2; ranks <= 8; ++ranks)
    for (const std::int64_t chunk : {1, 3, 16}) {
      const std::int64_t sequence = 2 * ranks * chunk;
      const auto c = static_cast<std::size_t>(chunk);
      for (int rank = 0; rank < ranks; ++rank)
        for (int from = 0; from < ranks; ++from)
          REQUIRE(pairs<ZigZagOrder>(sequence, ranks, rank, from) ==
                  (from == rank ? c * (2 * c + 1) : 2 * c * c));
      // In natural order the last rank has most of the work.
      REQUIRE(pairs<NaturalOrder>(sequence, ranks, 0, ranks - 1) == 0);
      REQUIRE(pairs<NaturalOrder>(sequence, ranks, ranks - 1, 0) == 4 * c * c);
    }
}
