// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/io/matrix_rate.hpp>

#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace shardwright;
using shardwright_test::launch_ranks;

template <class Element> std::vector<double> rates(int ranks) {
  std::vector<double> measured(static_cast<std::size_t>(ranks));
  LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::seconds(60);
  launch_ranks(options, [&](HostCommunicator world) {
    measured[static_cast<std::size_t>(world.rank())] =
        measure_matrix_rate<Element>(world, DefaultTarget::make_execution_space(), 0.01);
  });
  return measured;
}

} // namespace

TEST_CASE("matrix_rate: all ranks get the same number, the sum of their rates") {
  kernels::use_single_threaded_blas();
  for (const int ranks : {1, 2, 3}) {
    const std::vector<double> single = rates<float>(ranks);
    for (const double rate : single) {
      CHECK(std::isfinite(rate));
      CHECK(rate > 0);
      CHECK(rate == single.front());
    }
  }
  CHECK(rates<double>(2).front() > 0);
}

TEST_CASE("matrix_rate: an invalid time is rejected") {
  LaunchOptions options;
  options.ranks = 1;
  for (const double seconds :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(launch_ranks(options,
                                 [&](HostCommunicator world) {
                                   (void)measure_matrix_rate<float>(
                                       world, DefaultTarget::make_execution_space(), seconds);
                                 }),
                    InvalidArgument);
}
