// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Random calls with a plain model of each: what every byte of a rank's buffer must be afterwards.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/hash.hpp>

#include "support/combine.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace fuzz {

namespace sw = shardwright;

/// Numbers that are the same wherever they are drawn from the same seed.
class Random {
public:
  template <class... Words> explicit Random(std::uint64_t seed, Words... words) : state_(seed) {
    ((state_ = sw::detail::mixed(state_, static_cast<std::uint64_t>(words))), ...);
  }
  std::uint64_t operator()(std::uint64_t below) { return (state_ = sw::detail::mixed(state_, 1)) % below; }
  [[nodiscard]] int number(int below) { return static_cast<int>((*this)(static_cast<std::uint64_t>(below))); }
  [[nodiscard]] bool chance(int percent) { return number(100) < percent; }

private:
  std::uint64_t state_;
};

/// What all ranks of a group draw alike about one call of it.
struct Drawn {
  std::uint64_t seed = 0;
  sw::CollectiveCall call{};
  bool even = true; ///< Without blocks.
  bool in_place = false;

  /// The element that a rank of the group contributes at a position of its input. Sums, products and averages
  /// of it over a few ranks are exact in every element type.
  [[nodiscard]] int element(int rank, std::size_t at) const {
    const std::uint64_t bits =
        sw::detail::mixed(sw::detail::mixed(seed, static_cast<std::uint64_t>(rank)), at);
    if (call.reduce_op == sw::ReduceOp::product)
      return 1 + static_cast<int>(bits % 2);
    const bool negative = call.element != sw::ElementType::uint8 && call.element != sw::ElementType::uint32 &&
                          call.element != sw::ElementType::uint64;
    return static_cast<int>(bits % 9) - (negative ? 4 : 0);
  }
  /// Elements that a rank sends to another.
  [[nodiscard]] std::size_t count(int from, int to) const {
    if (even)
      return call.count;
    const bool one_list = call.operation != sw::Operation::all_to_all;
    const int row = !one_list ? from : 0;
    const int column = call.operation == sw::Operation::all_gather ? from : to;
    const std::uint64_t bits = sw::detail::mixed(seed, static_cast<std::uint64_t>(row * 64 + column + 1000));
    return bits % 4 == 0 ? 0 : bits / 4 % (call.count + 1);
  }
};

/// Levels that multiply to the number of ranks, in any order.
inline sw::ReductionOrder random_order(int ranks, Random& random) {
  sw::ReductionOrder out;
  int stride = 1;
  for (int rest = ranks; rest > 1;) {
    int factor = 2;
    while (rest % factor != 0)
      ++factor;
    if (random.chance(30))
      factor = rest;
    out.levels[static_cast<std::size_t>(out.count++)] = {factor, stride};
    stride *= factor;
    rest /= factor;
  }
  for (int i = out.count; i > 1; --i)
    std::swap(out.levels[static_cast<std::size_t>(i - 1)], out.levels[random(static_cast<std::uint64_t>(i))]);
  return out;
}

/// A collective with data, of a group.
inline Drawn draw_collective(std::uint64_t seed, int ranks) {
  Random random(seed, 7);
  constexpr sw::Operation operations[] = {sw::Operation::broadcast, sw::Operation::all_reduce,
                                          sw::Operation::all_gather, sw::Operation::reduce_scatter,
                                          sw::Operation::all_to_all};
  Drawn out;
  out.seed = seed;
  out.call.operation = operations[random(5)];
  out.call.element = static_cast<sw::ElementType>(random(11));
  const bool averages =
      out.call.element == sw::ElementType::float32 || out.call.element == sw::ElementType::float64;
  const bool complex = sw::is_complex(out.call.element);
  constexpr sw::ReduceOp reductions[] = {sw::ReduceOp::sum, sw::ReduceOp::product, sw::ReduceOp::maximum,
                                         sw::ReduceOp::minimum, sw::ReduceOp::average};
  out.call.reduce_op = reductions[random(averages ? 5 : complex ? 1 : 4)];
  out.call.root = random.number(ranks);
  constexpr std::size_t most[] = {1, 8, 60, 60, 700, 6000};
  out.call.count = random(most[random(6)] + 1);
  const bool blocks =
      sw::detail::has_in_blocks(out.call.operation) || sw::detail::has_out_blocks(out.call.operation);
  out.even = !blocks || random.chance(40);
  out.in_place = random.chance(40);
  // Each level divides its own average, and rounds.
  if (sw::detail::reduces(out.call.operation) && out.call.reduce_op != sw::ReduceOp::average &&
      random.chance(50))
    out.call.order = random_order(ranks, random);
  return out;
}

/// One rank's part of a call: its buffers and what must be in them afterwards.
class Part {
public:
  Part(const Drawn& drawn, int rank, int ranks)
      : drawn_(drawn), rank_(rank), ranks_(ranks), layout_(drawn.seed, rank, 99) {
    call = drawn.call;
    lay_out();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  sw::CollectiveCall call; ///< To be issued; refers to the buffers here.

  /// "" if every byte of both buffers is as it must be.
  [[nodiscard]] std::string wrong() const {
    if (const std::string in = difference(in_, in_wanted_, "input"); !in.empty() || !separate_out())
      return in;
    return difference(out_, out_wanted_, "output");
  }

private:
  using Bytes = std::vector<std::byte>;
  static constexpr auto untouched = std::byte{0xA5};

  [[nodiscard]] bool separate_out() const { return !shared_; }
  [[nodiscard]] std::size_t bytes() const { return sw::size_of(call.element); }

  /// A complex element is value - i value.
  void put(Bytes& to, std::size_t at, double value) const {
    const std::size_t parts = sw::detail::parts_of(call.element);
    sw::detail::with_element(call.element, [&](auto type) {
      using Element = typename decltype(type)::type;
      for (std::size_t part = 0; part < parts; ++part) {
        const double number = part == 0 ? value : 0.0 - value; // sums of zeros are not negative
        const auto element = static_cast<Element>(static_cast<sw::AccumulationElement<Element>>(number));
        std::memcpy(to.data() + (at * parts + part) * sizeof element, &element, sizeof element);
      }
    });
  }
  [[nodiscard]] static std::size_t place(const sw::StridedBlock& block, std::size_t i) {
    return block.offset +
           (block.row_length == 0 ? 0 : i / block.row_length * block.row_stride + i % block.row_length);
  }

  /// Blocks of these lengths with gaps, in a random order; each whole or in rows.
  [[nodiscard]] std::vector<sw::StridedBlock> blocks_of(const std::vector<std::size_t>& counts,
                                                        std::size_t& end) {
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[layout_(i)]);
    std::vector<sw::StridedBlock> out(counts.size());
    end = 0;
    for (const std::size_t at : order) {
      end += layout_(3);
      const std::size_t divisors[] = {1, 2, 3, 5};
      std::size_t rows = divisors[layout_(4)];
      if (counts[at] % rows != 0 || drawn_.in_place)
        rows = 1;
      const std::size_t length = counts[at] / rows;
      out[at] = {end, rows, length, length + (rows > 1 ? layout_(4) : 0)};
      end = std::max(end, out[at].end());
    }
    return out;
  }
  [[nodiscard]] std::vector<sw::StridedBlock> side(bool gives, std::size_t& end) {
    std::vector<std::size_t> counts;
    for (int other = 0; other < ranks_; ++other)
      counts.push_back(gives ? drawn_.count(rank_, other) : drawn_.count(other, rank_));
    if (!drawn_.even)
      return blocks_of(counts, end);
    std::vector<sw::StridedBlock> out;
    for (std::size_t i = 0; i < counts.size(); ++i)
      out.push_back(sw::contiguous_block(i * call.count, call.count));
    end = counts.size() * call.count;
    return out;
  }

  void lay_out() {
    using sw::Operation;
    const auto own = static_cast<std::size_t>(rank_);
    std::size_t in_end = 0, out_end = 0;
    if (sw::detail::has_in_blocks(call.operation))
      in_blocks_ = side(true, in_end);
    if (sw::detail::has_out_blocks(call.operation))
      out_blocks_ = side(false, out_end);
    if (call.operation == Operation::all_gather)
      in_end = call.count = out_blocks_[own].count();
    else if (call.operation == Operation::reduce_scatter)
      out_end = call.count = in_blocks_[own].count();
    else if (call.operation != Operation::all_to_all)
      in_end = out_end = call.count;
    in_.assign(in_end * bytes(), untouched);
    out_.assign(out_end * bytes(), untouched);
    fill_in(in_end);
    in_wanted_ = in_;
    out_wanted_ = out_;
    expect();
    share_buffers(own);
    if (!drawn_.even) {
      call.in_blocks = in_blocks_;
      call.out_blocks = out_blocks_;
    }
  }
  void fill_in(std::size_t end) {
    if (in_blocks_.empty()) {
      for (std::size_t i = 0; i < end; ++i)
        put(in_, i, drawn_.element(rank_, i));
      return;
    }
    for (int to = 0; to < ranks_; ++to) {
      const sw::StridedBlock& block = in_blocks_[static_cast<std::size_t>(to)];
      for (std::size_t i = 0; i < block.count(); ++i)
        put(in_, place(block, i), given(rank_, to, i));
    }
  }
  /// The element that goes from a rank to another.
  [[nodiscard]] int given(int from, int to, std::size_t i) const {
    return drawn_.element(from, static_cast<std::size_t>(to) * 100'000 + i);
  }

  template <class Value> [[nodiscard]] double reduced(Value&& of_rank) const {
    double out = of_rank(0);
    for (int rank = 1; rank < ranks_; ++rank)
      out = test_support::combine(call.reduce_op, out, of_rank(rank));
    return call.reduce_op == sw::ReduceOp::average ? out / ranks_ : out;
  }

  void expect() {
    using sw::Operation;
    for (int from = 0; from < ranks_ && !out_blocks_.empty(); ++from) {
      const sw::StridedBlock& block = out_blocks_[static_cast<std::size_t>(from)];
      for (std::size_t i = 0; i < block.count(); ++i)
        put(out_wanted_, place(block, i),
            call.operation == Operation::all_gather ? drawn_.element(from, i) : given(from, rank_, i));
    }
    for (std::size_t i = 0; i < call.count && out_blocks_.empty(); ++i) {
      if (call.operation == Operation::broadcast)
        put(out_wanted_, i, drawn_.element(call.root, i));
      else if (call.operation == Operation::all_reduce)
        put(out_wanted_, i, reduced([&](int rank) { return drawn_.element(rank, i); }));
      else
        put(out_wanted_, i, reduced([&](int rank) { return given(rank, rank_, i); }));
    }
  }

  /// One buffer for both sides, where the call allows it.
  void share_buffers(std::size_t own) {
    using sw::Operation;
    call.in = in_.data();
    call.out = out_.data();
    if (call.operation == Operation::broadcast && rank_ != call.root)
      call.in = nullptr;
    if (!drawn_.in_place || call.operation == Operation::all_to_all)
      return;
    if (call.operation == Operation::all_gather) { // the own block is whole, and holds the input
      const std::size_t at = std::min(out_blocks_[own].offset * bytes(), out_.size());
      std::copy(in_.begin(), in_.end(), out_.begin() + static_cast<std::ptrdiff_t>(at));
      in_.swap(out_);
      in_wanted_.swap(out_wanted_);
      call.in = in_.data() + at;
      call.out = in_.data();
    } else if (call.operation == Operation::reduce_scatter) {
      const std::size_t at = std::min(in_blocks_[own].offset * bytes(), in_.size());
      std::copy(out_wanted_.begin(), out_wanted_.end(), in_wanted_.begin() + static_cast<std::ptrdiff_t>(at));
      call.out = in_.data() + at;
    } else {
      in_wanted_ = out_wanted_;
      call.out = in_.data();
      if (call.operation == Operation::broadcast)
        call.in = in_.data();
    }
    shared_ = true;
  }

  [[nodiscard]] std::string difference(const Bytes& is, const Bytes& wanted, const char* what) const {
    const auto at = std::mismatch(is.begin(), is.end(), wanted.begin()).first - is.begin();
    if (at == static_cast<std::ptrdiff_t>(is.size()))
      return {};
    return std::string("element ") + std::to_string(static_cast<std::size_t>(at) / bytes()) + " of " +
           std::to_string(is.size() / bytes()) + " of the " + what + " is wrong";
  }

  const Drawn drawn_;
  const int rank_, ranks_;
  Random layout_; ///< Of this rank alone: strides and gaps need not agree.
  std::vector<sw::StridedBlock> in_blocks_, out_blocks_;
  Bytes in_, out_, in_wanted_, out_wanted_;
  bool shared_ = false; ///< Both sides are in the first buffer.
};

} // namespace fuzz
