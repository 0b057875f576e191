// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace sw = shardwright;

namespace {

/// `a` and `b` are elements, or floats for narrow ones.
template <class E> E reference(E a, E b, sw::ReduceOp op) {
  if constexpr (std::is_integral_v<E>) {
    using U = std::make_unsigned_t<E>;
    const std::uint64_t x = static_cast<U>(a), y = static_cast<U>(b);
    if (op == sw::ReduceOp::sum || op == sw::ReduceOp::average)
      return static_cast<E>(static_cast<U>(x + y));
    if (op == sw::ReduceOp::product)
      return static_cast<E>(static_cast<U>(x * y));
  } else {
    if (op == sw::ReduceOp::sum || op == sw::ReduceOp::average)
      return a + b;
    if (op == sw::ReduceOp::product)
      return a * b;
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<E>::quiet_NaN();
  }
  return op == sw::ReduceOp::maximum ? std::max(a, b) : std::min(a, b);
}

template <class E> bool agrees(E a, E b) {
  if constexpr (sw::RealElement<E>)
    if (std::isnan(static_cast<double>(a)) && std::isnan(static_cast<double>(b)))
      return true;
  return std::memcmp(&a, &b, sizeof(E)) == 0; // NOLINT(bugprone-suspicious-memory-comparison): -0 is not 0
}

/// Full-range bits for integers, a NaN now and then for reals.
template <class E> std::vector<E> random_elements(std::size_t count, std::mt19937_64& random) {
  std::vector<E> out(count);
  for (E& each : out) {
    const std::uint64_t bits = random();
    if constexpr (sw::RealElement<E>)
      each = bits % 37 == 0 ? std::numeric_limits<E>::quiet_NaN()
                            : static_cast<E>(static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0);
    else
      each = static_cast<E>(bits);
  }
  return out;
}

template <class E>
void kernels_agree(sw::ReduceOp op, int inputs, std::size_t count, std::size_t shift, bool stream,
                   bool in_place) {
  std::mt19937_64 random(count * 31 + shift + static_cast<std::size_t>(inputs));
  std::vector<std::vector<E>> data;
  data.reserve(static_cast<std::size_t>(inputs));
  for (int s = 0; s < inputs; ++s)
    data.push_back(random_elements<E>(count + shift, random));
  std::vector<E> wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    using Main = sw::AccumulationElement<E>;
    Main value = data[0][i + shift];
    for (std::size_t s = 1; s < data.size(); ++s)
      value = reference<Main>(value, data[s][i + shift], op);
    if (op == sw::ReduceOp::average)
      value = static_cast<Main>(value / static_cast<Main>(inputs));
    wanted[i] = static_cast<E>(value);
  }
  std::vector<const void*> ins;
  ins.reserve(data.size());
  for (auto& each : data)
    ins.push_back(each.data() + shift);
  std::vector<E> first(count + shift + 2, E(1)), second(count + shift + 2, E(1));
  std::vector<void*> outs{first.data() + shift, second.data() + shift};
  if (in_place)
    outs[1] = data.back().data() + shift;
  const int divisor = op == sw::ReduceOp::average ? inputs : 1;
  sw::detail::reduce_run(sw::element_type_of<E>(), op,
                         {ins.data(), inputs, outs.data(), 2, count, divisor, stream});
  sw::detail::finish_streaming();
  bool equal = true;
  for (std::size_t i = 0; i < count; ++i)
    equal =
        equal && agrees(first[i + shift], wanted[i]) && agrees(static_cast<const E*>(outs[1])[i], wanted[i]);
  CHECK(equal);
  CHECK(first[count + shift] == E(1));
  CHECK(second[count + shift] == E(1));
}

template <class E> void all_kernels() {
  std::vector ops{sw::ReduceOp::sum, sw::ReduceOp::product, sw::ReduceOp::maximum, sw::ReduceOp::minimum};
  if (sw::RealElement<E>)
    ops.push_back(sw::ReduceOp::average);
  for (const auto op : ops)
    for (const int inputs : {1, 2, 3, 5})
      for (const std::size_t count : {0, 1, 5, 24, 63, 64, 65, 300, 1000})
        for (const std::size_t shift : {0, 1, 3})
          for (const bool in_place : {false, true})
            kernels_agree<E>(op, inputs, count, shift, count % 2 == 1, in_place);
}

} // namespace

TEST_CASE("reduction kernels agree with scalar code for every element type and operation", "[comm]") {
  all_kernels<float>();
  all_kernels<double>();
  all_kernels<std::int32_t>();
  all_kernels<std::uint32_t>();
  all_kernels<std::int64_t>();
  all_kernels<std::uint64_t>();
  all_kernels<std::uint8_t>();
  all_kernels<sw::bfloat16>();
  all_kernels<sw::float16>();
}

TEST_CASE("a sum of 16-bit elements keeps what single rounded additions would lose", "[comm]") {
  // 1 + 512 * 2^-9 is 2, but 1 + 2^-9 is 1 in bfloat16.
  std::vector<sw::bfloat16> data(513, sw::bfloat16(0x1p-9));
  data[0] = sw::bfloat16(1);
  std::vector<const void*> ins;
  for (const auto& each : data)
    ins.push_back(&each);
  sw::bfloat16 sum{};
  void* outs[] = {&sum};
  sw::detail::reduce_run(sw::ElementType::bfloat16, sw::ReduceOp::sum,
                         {ins.data(), 513, outs, 1, 1, 1, false});
  CHECK(sum == 2.0f);
}

TEST_CASE("an average over many ranks is divided by all of them", "[comm]") {
  for (const int inputs : {255, 256, 257, 512, 600})
    for (const std::size_t count : {1, 64, 300})
      for (const bool in_place : {false, true})
        kernels_agree<float>(sw::ReduceOp::average, inputs, count, 0, false, in_place);
}

TEST_CASE("nested orders add level by level", "[comm]") {
  constexpr int ranks = 12;
  constexpr std::size_t count = 1700;
  std::mt19937_64 random(3);
  std::vector<std::vector<float>> data(ranks);
  for (auto& each : data)
    for (std::size_t i = 0; i < count; ++i)
      each.push_back(static_cast<float>(static_cast<double>(random() >> 11U) * 0x1p-52 - 1.0));
  // Ranks are (a, b, c) of extents 2, 3, 2, c minor: first over b, then over c, then over a.
  sw::ReductionOrder order;
  order.count = 3;
  order.levels[0] = {3, 2};
  order.levels[1] = {2, 1};
  order.levels[2] = {2, 6};
  std::vector<const void*> ins;
  ins.reserve(data.size());
  for (auto& each : data)
    ins.push_back(each.data());
  std::vector<float> out(count);
  void* outs[] = {out.data()};
  sw::detail::NestedReduction reduction(ranks);
  reduction.begin(sw::ElementType::float32, sw::ReduceOp::sum, order);
  reduction.run(ins.data(), outs, 1, count, false);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t a, std::size_t b, std::size_t c) { return data[a * 6 + b * 2 + c][i]; };
    const auto over_b = [&](std::size_t a, std::size_t c) { return at(a, 0, c) + at(a, 1, c) + at(a, 2, c); };
    const auto over_c = [&](std::size_t a) { return over_b(a, 0) + over_b(a, 1); };
    REQUIRE(out[i] == over_c(0) + over_c(1));
  }
}

namespace {

/// Each node is rounded to the element, whichever kernel adds; NaNs pass, and an output may be an input.
template <class E> bool adds_in_tree(int ranks, std::size_t count, bool stream, bool in_place) {
  std::mt19937_64 random(count);
  std::vector<std::vector<E>> data;
  std::vector<const void*> ins;
  sw::ReductionOrder order;
  for (int stride = 1; stride < ranks; stride *= 2)
    order.levels[static_cast<std::size_t>(order.count++)] = {2, stride};
  for (int rank = 0; rank < ranks; ++rank)
    ins.push_back(data.emplace_back(random_elements<E>(count, random)).data());
  std::vector<std::vector<E>> sums = data;
  for (std::size_t step = 1; step < sums.size(); step *= 2)
    for (std::size_t rank = 0; rank < sums.size(); rank += 2 * step)
      for (std::size_t i = 0; i < count; ++i)
        sums[rank][i] = static_cast<E>(sums[rank][i] + sums[rank + step][i]);
  std::vector<E> out(count);
  void* outs[] = {out.data(), in_place ? data.back().data() : out.data()};
  sw::detail::NestedReduction reduction(ranks);
  reduction.begin(sw::element_type_of<E>(), sw::ReduceOp::sum, order);
  reduction.run(ins.data(), outs, in_place ? 2 : 1, count, stream);
  sw::detail::finish_streaming();
  bool equal = true;
  for (std::size_t i = 0; i < count; ++i)
    equal = equal && agrees(out[i], sums[0][i]) && (!in_place || agrees(data.back()[i], sums[0][i]));
  return equal;
}

} // namespace

TEST_CASE("a binary tree of ranks is added pairwise", "[comm]") {
  for (const int ranks : {2, 4, 8, 16})
    for (const std::size_t count : {1, 5, 24, 63, 64, 65, 300, 1700})
      for (const bool in_place : {false, true}) {
        INFO(ranks << " ranks, " << count << " elements");
        CHECK(adds_in_tree<float>(ranks, count, count % 2 == 0, in_place));
        CHECK(adds_in_tree<double>(ranks, count, count % 2 == 0, in_place));
        CHECK(adds_in_tree<sw::bfloat16>(ranks, count, false, in_place));
      }
}
