// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a fault of the suite on thread ranks.

#include "comm/fault_suite.hpp"
#include "support/ranks.hpp"

#include <chrono>
#include <latch>
#include <utility>

namespace fault_suite {

/// What is wrong on any rank, or an empty text. `place_of(world)` gives a rank its place; the deadline is
/// that of faults that must run into it.
template <class Place, class PlaceOf>
[[nodiscard]] std::string on_thread_ranks(const FaultOn<Place>& fault, int ranks,
                                          std::chrono::nanoseconds brief, PlaceOf place_of) {
  shardwright_test::Findings findings;
  std::latch met(ranks);
  const sw::LaunchOptions options{.ranks = ranks,
                                  .deadline = fault.at_deadline ? brief : std::chrono::minutes(1)};
  try {
    shardwright_test::launch_ranks(options, [&](sw::HostCommunicator world) {
      const int rank = world.rank();
      Scene<Place> scene(place_of(std::move(world)), [&] { met.arrive_and_wait(); });
      const std::string wrong = try_fault(fault, scene);
      findings.expect(wrong.empty(), "rank ", rank, ": ", wrong);
    });
  } catch (const sw::PeerFailed&) {
    // An abort leaves launch() by an error of its own; the ranks' errors have been looked at.
  }
  return findings.checks() == 0 ? "nothing was checked" : findings.text();
}

} // namespace fault_suite
