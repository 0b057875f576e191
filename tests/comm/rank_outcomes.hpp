// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a program on thread ranks and keeps the exception of each rank, so that a test can check every
/// one.

#include "support/launch_ranks.hpp"

#include <chrono>
#include <exception>
#include <latch>
#include <string>
#include <vector>

namespace rank_outcomes {

namespace sw = shardwright;

/// Each rank's exception, null if it threw none. A rank that has thrown stays until all others are done, too.
template <class Program>
std::vector<std::exception_ptr> of(int ranks, std::chrono::milliseconds deadline, Program program) {
  std::vector<std::exception_ptr> out(static_cast<std::size_t>(ranks));
  std::latch done(ranks);
  try {
    shardwright_test::launch_ranks({.ranks = ranks, .deadline = deadline}, [&](sw::HostCommunicator world) {
      try {
        program(world);
      } catch (...) {
        out[static_cast<std::size_t>(world.rank())] = std::current_exception();
      }
      done.arrive_and_wait();
    });
  } catch (const sw::PeerFailed&) {
    // After an abort, launch() throws its own error; the ranks' errors are checked instead.
  }
  return out;
}

/// The text of an exception of one type; of any other, a text that says what it was.
template <class Expected> std::string text(const std::exception_ptr& error) {
  if (!error)
    return "(nothing was thrown)";
  try {
    std::rethrow_exception(error);
  } catch (const Expected& expected) {
    return expected.what();
  } catch (const std::exception& other) {
    return std::string("(another type) ") + other.what();
  } catch (...) {
    return "(not a std::exception)";
  }
}

/// The exception itself, for its members.
template <class Expected> Expected as(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Expected& expected) {
    return expected;
  }
}

/// Long enough never to pass while all goes well, even on a busy machine.
inline constexpr std::chrono::milliseconds ample{60'000};
/// Short, for tests in which it must pass.
inline constexpr std::chrono::milliseconds brief{400};

} // namespace rank_outcomes
