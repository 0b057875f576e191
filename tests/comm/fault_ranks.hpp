// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a fault of the suite on thread ranks.

#include "comm/fault_suite.hpp"
#include "support/ranks.hpp"

#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fault_suite {

/// All faults of the suite, including that of a program that throws.
template <class Place> [[nodiscard]] std::vector<FaultOn<Place>> faults_and_throws() {
  std::vector<FaultOn<Place>> out = faults<Place>();
  out.push_back(throws<Place>);
  return out;
}

/// The errors of any rank, or an empty text, of one attempt. `place_of(world)` returns a rank's place.
template <class Place, class PlaceOf>
[[nodiscard]] std::string on_thread_ranks_within(std::chrono::nanoseconds deadline,
                                                 const FaultOn<Place>& fault, int ranks, PlaceOf place_of) {
  shardwright_test::Findings findings;
  std::latch met(ranks), begun(ranks);
  const sw::LaunchOptions options{.ranks = ranks, .deadline = deadline};
  try {
    shardwright_test::launch_ranks(options, [&](sw::HostCommunicator world) {
      const int rank = world.rank();
      Scene<Place> scene(
          place_of(std::move(world)), [&] { met.arrive_and_wait(); }, [&] { met.count_down(); },
          [&] {
            begun.count_down();
            for (int look = 0; look < 10000 && !begun.try_wait(); ++look)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
          });
      const std::string wrong = try_fault(fault, scene);
      findings.expect(wrong.empty(), "rank ", rank, ": ", wrong);
    });
    findings.expect(std::string(fault.name) != "throws", "launch must throw what a rank has thrown");
  } catch (const DiskIsFull&) {
    findings.expect(std::string(fault.name) == "throws", "launch threw what no rank has thrown");
  } catch (const sw::PeerFailed&) {
    // After an abort, launch() throws its own error; the ranks' errors have been checked.
  }
  return findings.checks() == 0 ? "nothing was checked" : findings.text();
}

/// The same, of as many attempts as the fault may need.
template <class Place, class PlaceOf>
[[nodiscard]] std::string on_thread_ranks(const FaultOn<Place>& fault, int ranks,
                                          std::chrono::nanoseconds brief, PlaceOf place_of) {
  return try_patiently(fault, brief, [&](std::chrono::nanoseconds deadline) {
    return on_thread_ranks_within(deadline, fault, ranks, place_of);
  });
}

} // namespace fault_suite
