// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/layout/document_order.hpp>
#include <shardwright/layout/token_order.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
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

// Two sequences of 8 over 2 ranks, whose rows hold places 0 1 6 7 2 3 4 5. The second one is arranged.
constexpr std::int32_t arranged[] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 4, 5, 6, 7, 2, 3};
constexpr RowOrder arranged_rows{8, 2, arranged};
static_assert(arranged_rows.position_in_text(0, 2) == 6 && arranged_rows.position_in_text(1, 2) == 2);
static_assert(arranged_rows.position_in_text(0, 7) == 5 && arranged_rows.position_in_text(1, 7) == 7);
static_assert(ZigZagOrder::rows(8, 2).position_in_text(1, 2) == 6);

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

/// The starts of documents that fill a sequence: of these lengths, then of one token each.
std::vector<std::int32_t> starts_of(const std::vector<std::size_t>& lengths, std::size_t sequence) {
  std::vector<std::int32_t> out;
  for (const std::size_t length : lengths)
    out.resize(std::min(sequence, out.size() + length), static_cast<std::int32_t>(out.size()));
  while (out.size() < sequence)
    out.push_back(static_cast<std::int32_t>(out.size()));
  return out;
}

/// A sequence of documents whose lengths are log-normal, about 400 tokens in the mean.
std::vector<std::int32_t> drawn_starts(std::uint64_t seed, std::size_t sequence) {
  std::vector<std::size_t> lengths;
  for (std::size_t sum = 0; sum < sequence; sum += lengths.back()) {
    const auto words = random_words({seed, 9}, lengths.size());
    const double radius = std::sqrt(-2 * std::log((words.word[0] + 1.0) / 4294967297.0));
    const double normal = radius * std::cos(6.283185307179586 * words.word[1] / 4294967296.0);
    lengths.push_back(1 + static_cast<std::size_t>(std::exp(5.5 + 1.1 * normal)));
  }
  return starts_of(lengths, sequence);
}

/// The largest number of query-key pairs of a rank, divided by the mean. Checks that positions are each held
/// once, and ascend on a rank.
double imbalance(const std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& order, int ranks) {
  std::vector<bool> held(starts.size());
  double all = 0, most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const TokenRuns places = ZigZagOrder::runs(static_cast<std::int64_t>(starts.size()), ranks, rank);
    std::int32_t last = -1;
    double pairs = 0;
    for (std::size_t row = 0; row < places.rows; ++row) {
      const std::int32_t position = order.at(places.position(row));
      REQUIRE(position > last);
      last = position;
      const auto at = static_cast<std::size_t>(position);
      REQUIRE(!held.at(at));
      held[at] = true;
      pairs += position - starts[at] + 1;
    }
    all += pairs;
    most = std::max(most, pairs);
  }
  return most / all * ranks;
}

} // namespace

TEST_CASE("packed documents are shared out so that each rank has as many query-key pairs") {
  std::vector<std::int32_t> chunks(8192);
  for (std::size_t i = 0; i < chunks.size(); ++i)
    chunks[i] = static_cast<std::int32_t>(i);
  for (const int ranks : {2, 4, 8}) {
    double worst = 0, in_chunks = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto starts = drawn_starts(seed, 8192);
      worst = std::max(worst, imbalance(starts, balanced_order(starts, ranks), ranks));
      in_chunks = std::max(in_chunks, imbalance(starts, chunks, ranks));
    }
    INFO(ranks << " ranks: " << worst << ", in chunks " << in_chunks);
    CHECK(worst <= 1.05);
    CHECK(in_chunks > 1.25); // so the lengths matter
    // One document is in chunks.
    CHECK(balanced_order(starts_of({8192}, 8192), ranks) == chunks);
  }
  // Short ones, shorter than ranks, of one token, one that is most of the sequence, and padding.
  for (const auto& lengths : std::vector<std::vector<std::size_t>>{
           {}, {1, 1, 1}, {3, 2, 5, 1, 4}, {7, 40}, {45, 2}, {16, 16, 16}, {30, 10, 7, 1}})
    for (const int ranks : {1, 2, 4, 8}) {
      const auto starts = starts_of(lengths, 48);
      const double found = imbalance(starts, balanced_order(starts, ranks), ranks);
      INFO(lengths.size() << " documents on " << ranks << " ranks");
      CHECK(found < 2); // a rank has as few as six tokens, so one document may be twice its share
    }
  CHECK_THROWS_WITH(balanced_order(starts_of({}, 12), 4),
                    "balanced_order: the sequence 12 must be a multiple of 8, two chunks for each of 4 ranks "
                    "(change its length, or use fewer ranks)");
  const auto refused = [](std::vector<std::int32_t> starts, const std::string& found) {
    CHECK_THROWS_WITH(balanced_order(starts, 2),
                      "balanced_order: the start of a token's document must be its own position or the start "
                      "of the token before it, but at position " +
                          found + " (fill a sequence by fill_document_starts)");
  };
  refused({1, 1, 1, 1}, "0 it is 1");
  refused({-1, 1, 1, 1}, "0 it is -1");
  refused({0, 0, 1, 3}, "2 it is 1");
}

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
