// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) // they do not follow a change of stacks

#include "support/fiber_warp.hpp" // first: what follows is compiled as for a device

#include <shardwright/tensor/kernels/softmax.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// Bodies of kernels, run by the 32 threads of a warp: CUDA's way through the lanes, which hosts never take.

namespace {

namespace sw = shardwright;
namespace detail = sw::kernels::detail;
using fibers::Warp;

template <class Number>
std::vector<Number> numbers(std::size_t count) {
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

} // namespace

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

TEST_CASE("a warp of fibers shows what a warp would hide: a missing barrier, threads that part",
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
