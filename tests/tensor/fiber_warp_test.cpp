// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) // they do not follow a change of stacks

#include "support/fiber_warp.hpp" // first: the code below is compiled as for a device

#include <shardwright/tensor/kernels/copy_rows.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/softmax.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

// Bodies of kernels, run by the 32 threads of a warp: CUDA's path through the lanes, which hosts never take.

namespace {

namespace sw = shardwright;
namespace detail = sw::kernels::detail;
using fibers::Warp;

template <class Number> std::vector<Number> numbers(std::size_t count) {
  std::vector<Number> out(count);
  std::uint32_t state = 12345;
  for (Number& number : out) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<Number>(static_cast<double>(state >> 8) * 0x1p-22 - 2);
  }
  return out;
}

/// The largest difference of a row's softmax from the one in double; `offset` moves it off its alignment.
template <class Number, bool logarithm>
double softmax_error(std::size_t columns, std::size_t offset, bool backwards) {
  const std::vector<Number> x = numbers<Number>(columns + offset);
  std::vector<Number> y(columns + offset + 3, Number(7));
  const detail::SoftmaxForward<Number, logarithm> kernel{{x.data() + offset, 1, columns, columns},
                                                         {y.data() + offset, 1, columns, columns},
                                                         -std::numeric_limits<Number>::infinity()};
  REQUIRE(Warp::run([&kernel](unsigned) { kernel(0); }, backwards) == "");
  double sum = 0;
  for (std::size_t c = 0; c < columns; ++c)
    sum += std::exp(static_cast<double>(x[offset + c]));
  double worst = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    const double exact = logarithm ? static_cast<double>(x[offset + c]) - std::log(sum)
                                   : std::exp(static_cast<double>(x[offset + c])) / sum;
    worst = std::max(worst, std::abs(static_cast<double>(y[offset + c]) - exact));
  }
  for (std::size_t c = offset + columns; c < y.size(); ++c)
    worst = std::max(worst, std::abs(static_cast<double>(y[c]) - 7)); // nothing is stored past the end
  return worst;
}

/// The largest error of a row's statistics and of its gradient, compared with double on the same elements.
template <class Element> double cross_entropy_error(std::size_t columns, std::size_t offset, bool backwards) {
  using Number = sw::AccumulationElement<Element>;
  std::vector<Element> logits(columns + offset + 3, Element(7));
  const std::vector<double> random = numbers<double>(columns);
  for (std::size_t c = 0; c < columns; ++c)
    logits[offset + c] =
        Element(12 * random[c] + 30.0 * static_cast<double>(c) / static_cast<double>(columns));
  const std::vector<Element> given = logits;
  const auto target = static_cast<std::int32_t>(columns / 2);
  Number maximum = 0, sum = 0, target_logit = 0;
  const sw::kernels::TargetRule rule{.smoothing = 0.25, .vocabulary = static_cast<double>(columns)};
  const detail::RowStatistics<Element> statistics{
      {logits.data() + offset, 1, columns, columns}, &target, 0, &maximum, &sum, &target_logit, rule, {}};
  REQUIRE(Warp::run([&statistics](unsigned) { statistics(0); }, backwards) == "");
  double largest = -1e9, whole = 0, all = 0;
  for (std::size_t c = 0; c < columns; ++c)
    largest = std::max(largest, static_cast<double>(given[offset + c]));
  for (std::size_t c = 0; c < columns; ++c) {
    whole += std::exp(static_cast<double>(given[offset + c]) - largest);
    all += static_cast<double>(given[offset + c]) / static_cast<double>(columns);
  }
  const double own = static_cast<double>(given[offset + columns / 2]);
  double worst = std::max({std::abs(maximum - largest), std::abs(sum / whole - 1),
                           std::abs(target_logit - (0.75 * own + 0.25 * all)) / 100});
  const detail::LogitGradient<Element> gradient{
      {logits.data() + offset, 1, columns, columns}, &maximum, &sum, &target, 0, 2.0,
      {logits.data() + offset, 1, columns, columns}, rule};
  REQUIRE(Warp::run([&gradient](unsigned) { gradient(0); }, backwards) == "");
  for (std::size_t c = 0; c < logits.size(); ++c) {
    const bool inside = c >= offset && c < offset + columns;
    double exact = static_cast<double>(given[c]);
    if (inside)
      exact = 2 * (std::exp(exact - largest) / whole - 0.25 / static_cast<double>(columns) -
                   (c - offset == columns / 2 ? 0.75 : 0));
    worst = std::max(worst, std::abs(static_cast<double>(logits[c]) - exact) / (inside ? 4 : 1e-9));
  }
  return worst;
}

/// A block of rows of a tensor of 11 rows of 83, drawn by warps.
template <class Element, class Draw>
std::vector<Element> drawn(const Draw& draw, std::size_t row, std::size_t column, std::size_t columns,
                           bool joined, bool backwards) {
  const std::size_t rows = 3;
  std::vector<Element> block(rows * columns, Element(2));
  detail::RandomElements<Element, Draw> kernel{
      block.data(), block.data(), {0, 0, row, column}, {1, 1, 11, 83}, {1, 1, rows, columns}, {}, 3,
      {5, 6},       draw};
  if (joined)
    kernel.join_rows();
  for (std::size_t each = 0; each < kernel.extent[2]; ++each)
    for (std::size_t begin = 0; begin < kernel.extent[3]; begin += 512) {
      const std::size_t end = std::min<std::size_t>(begin + 512, kernel.extent[3]);
      REQUIRE(Warp::run([&](unsigned) { kernel(each, begin, end); }, backwards) == "");
    }
  return block;
}

double unit_of(std::uint64_t index) {
  return sw::unit_interval(sw::random_words({5, 6}, index / 4).word[index % 4]);
}

} // namespace

TEST_CASE("a warp of fibers sums rows that do not begin at multiples of 16 bytes", "[kernels]") {
  // The first row of the result is aligned, and of a row of odd width only every eighth is.
  for (const std::size_t width : {7U, 256U, 257U, 519U}) {
    INFO(width << " columns");
    const std::vector<float> numbers_of_rows = numbers<float>(5 * width);
    const std::vector<sw::bfloat16> rows(numbers_of_rows.begin(), numbers_of_rows.end());
    const std::vector<std::int32_t> places{0, 1, 3, -1, -1, -1};
    const std::vector<float> gates{0.5F, 2, 1, 3, 1, 1};
    std::vector<sw::bfloat16> out(3 * width + 8, sw::bfloat16(7));
    const sw::kernels::SumSlots<sw::bfloat16, sw::kernels::PackedRows<sw::bfloat16>> kernel{
        {rows.data(), width}, places.data(), gates.data(), 2, out.data(), width};
    for (std::size_t token = 0; token < 3; ++token)
      REQUIRE(Warp::run([&](unsigned) { kernel(token); }, false) == "");
    for (std::size_t c = 0; c < out.size(); ++c) {
      const std::size_t token = c / width, at = c % width;
      const float exact = token == 0   ? 0.5F * float(rows[at]) + 2 * float(rows[width + at])
                          : token == 1 ? float(rows[3 * width + at])
                          : token == 2 ? 0
                                       : 7;
      REQUIRE(float(out[c]) == float(sw::bfloat16(exact)));
    }
  }
}

TEST_CASE("a warp of fibers draws the random number of each element", "[kernels]") {
  for (const bool backwards : {false, true})
    for (const auto& [column, columns] : {std::pair{0U, 83U}, {0U, 40U}, {1U, 9U}, {2U, 80U}, {35U, 48U}}) {
      const std::size_t row = 4;
      INFO(columns << " columns from " << column);
      const bool joined = columns == 83;
      const auto uniform =
          drawn<double>(detail::DrawUniform<double>{1, 2}, row, column, columns, joined, backwards);
      const auto normal =
          drawn<double>(detail::DrawNormal<double>{0, 1}, row, column, columns, joined, backwards);
      const detail::DrawDropout<float> draw{detail::words_below(0.3), 1.5F};
      const auto dropped = drawn<sw::bfloat16>(draw, row, column, columns, joined, backwards);
      double worst = 0;
      for (std::size_t i = 0; i < 3 * columns; ++i) {
        const std::uint64_t index = (row + i / columns) * 83 + column + i % columns;
        const double angle = 6.283185307179586 * unit_of(index | 1);
        const double radius = std::sqrt(-2 * std::log(unit_of(index & ~std::uint64_t{1})));
        worst = std::max({worst, std::abs(uniform[i] - (1 + 2 * unit_of(index))),
                          std::abs(normal[i] - radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle))),
                          std::abs(static_cast<double>(dropped[i]) - (unit_of(index) < 0.3 ? 0 : 3))});
      }
      CHECK(worst < 1e-14);
    }
}

TEMPLATE_TEST_CASE("a warp of fibers copies rows and writes zeros, bit by bit", "[kernels]", double, float,
                   sw::bfloat16, unsigned char) {
  const std::size_t rows = 3;
  for (const std::size_t length : {1U, 16U, 100U, 256U, 1030U})
    for (const std::size_t offset : {0U, 1U, 8U}) {
      INFO(length << " elements from " << offset);
      const std::size_t stride = length + 5;
      std::vector<unsigned char> bytes((offset + rows * stride) * sizeof(TestType));
      for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<unsigned char>(i * 89 + i / 251 + 1);
      std::vector<TestType> in(offset + rows * stride), out(offset + rows * length + 3);
      std::memcpy(static_cast<void*>(in.data()), bytes.data(), bytes.size());
      const std::size_t pieces = (length + 511) / 512;
      using Copy = detail::CopyRows<TestType>;
      const detail::RowPieces<Copy> copy{
          {in.data() + offset, out.data() + offset, length, stride}, length, 512, pieces};
      for (std::size_t work = 0; work < rows * pieces; ++work)
        REQUIRE(Warp::run([&](unsigned) { copy(work); }, false) == "");
      for (std::size_t row = 0; row < rows; ++row)
        REQUIRE(std::memcmp(out.data() + offset + row * length, in.data() + offset + row * stride,
                            length * sizeof(TestType)) == 0);
      std::vector<TestType> again(rows * length);
      const detail::CopyShortRows<TestType> each{in.data() + offset, again.data(), length, stride};
      for (std::size_t i = 0; i < rows * length; ++i)
        each(i);
      REQUIRE(std::memcmp(again.data(), out.data() + offset, again.size() * sizeof(TestType)) == 0);
      const detail::RowPieces<detail::ZeroElements<TestType>> zero{
          {out.data() + offset}, length, 512, pieces};
      for (std::size_t block = 0; block < pieces; ++block)
        REQUIRE(Warp::run([&](unsigned) { zero(block); }, false) == "");
      const auto* const written = reinterpret_cast<const unsigned char*>(out.data() + offset);
      for (std::size_t i = 0; i < length * sizeof(TestType); ++i)
        REQUIRE(written[i] == 0);
      REQUIRE(std::memcmp(out.data() + offset + length, in.data() + offset + stride, sizeof(TestType)) == 0);
    }
}

TEST_CASE("a warp of fibers reads a row once for its statistics and once for its gradient", "[kernels]") {
  for (const bool backwards : {false, true})
    for (const std::size_t columns : {1U, 9U, 255U, 1023U, 1024U, 1029U, 2333U})
      for (const std::size_t offset : {0U, 1U, 4U}) {
        INFO(columns << " columns from " << offset << (backwards ? ", backwards" : ""));
        CHECK(cross_entropy_error<double>(columns, offset, backwards) < 1e-14);
        CHECK(cross_entropy_error<float>(columns, offset, backwards) < 4e-6);
        CHECK(cross_entropy_error<sw::bfloat16>(columns, offset, backwards) < 0x1p-9);
        CHECK(cross_entropy_error<sw::float16>(columns, offset, backwards) < 0x1p-12);
      }
}

TEST_CASE("a warp of fibers computes rows of any width and alignment", "[kernels]") {
  for (const bool backwards : {false, true})
    for (const std::size_t columns : {1U, 5U, 31U, 255U, 256U, 257U, 1000U, 2304U})
      for (const std::size_t offset : {0U, 1U, 4U}) {
        INFO(columns << " columns from " << offset << (backwards ? ", backwards" : ""));
        CHECK(softmax_error<double, false>(columns, offset, backwards) < 1e-14);
        CHECK(softmax_error<double, true>(columns, offset, backwards) < 1e-12);
        CHECK(softmax_error<float, false>(columns, offset, backwards) < 1e-6);
        CHECK(softmax_error<float, true>(columns, offset, backwards) < 1e-5);
      }
}

TEST_CASE("a warp of fibers sums, finds and counts over its threads", "[kernels]") {
  for (const bool backwards : {false, true}) {
    std::vector<double> sums(Warp::threads);
    std::vector<std::uint32_t> bits(Warp::threads);
    REQUIRE(Warp::run(
                [&](unsigned thread) {
                  sums[thread] = detail::over_threads(static_cast<double>(thread), detail::PlusLanes());
                  bits[thread] = detail::threads_where(thread % 5 == 2);
                },
                backwards) == "");
    for (unsigned thread = 0; thread < Warp::threads; ++thread) {
      CHECK(sums[thread] == 496);
      CHECK(detail::bit_count(bits[thread]) == 6);
      CHECK(detail::lowest_bit(bits[thread]) == 2);
    }
  }
}

TEST_CASE("a warp of fibers detects what a warp would hide: a missing barrier, threads that diverge",
          "[kernels]") {
  const auto sums_of_neighbours = [](bool synchronised, bool backwards) {
    std::vector<int> shared(Warp::threads), out(Warp::threads);
    const std::string complaint = Warp::run(
        [&](unsigned thread) {
          shared[thread] = static_cast<int>(thread) + 1;
          if (synchronised)
            detail::sync_lanes();
          out[thread] = shared[(thread + 1) % Warp::threads];
        },
        backwards);
    REQUIRE(complaint == "");
    int sum = 0;
    for (const int each : out)
      sum += each;
    return sum;
  };
  CHECK(sums_of_neighbours(true, false) == 528);
  CHECK(sums_of_neighbours(true, true) == 528);
  CHECK(sums_of_neighbours(false, false) != 528);
  CHECK(sums_of_neighbours(false, true) != 528);

  CHECK(Warp::run(
            [](unsigned thread) {
              if (thread != 3)
                detail::sync_lanes();
            },
            false) == "a thread left while others wait for it");
  CHECK(Warp::run(
            [](unsigned thread) {
              if (thread == 3)
                static_cast<void>(detail::threads_where(true));
              else
                detail::sync_lanes();
            },
            false) == "threads met in __ballot_sync and __syncwarp");
}

#endif
