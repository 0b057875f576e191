// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs test code on thread ranks and collects what fails there: Catch2's assertions are for one
/// thread.

#include "support/launch_ranks.hpp"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace shardwright_test {

/// @brief Failures of all ranks; the first ones are kept.
class Findings {
public:
  /// @brief Records the words, joined, where `holds` is false.
  template <class... Words> void expect(bool holds, const Words&... words) {
    const std::lock_guard lock(mutex_);
    ++checks_;
    if (holds)
      return;
    ++failures_;
    if (first_.size() >= 8)
      return;
    std::ostringstream text;
    (text << ... << words);
    first_.push_back(text.str());
  }

  /// @brief The first failures and their number; empty if there are none.
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const std::string& each : first_)
      out += each + "\n";
    return failures_ == 0 ? out : out + std::to_string(failures_) + " failures";
  }
  [[nodiscard]] std::size_t checks() const { return checks_; }

private:
  std::mutex mutex_;
  std::vector<std::string> first_;
  std::size_t failures_ = 0;
  std::size_t checks_ = 0;
};

/// @brief Runs `program(world, findings)` on thread ranks; returns the failures, and "nothing was checked"
/// for none.
template <class Program>
[[nodiscard]] std::string on_ranks(int ranks, Program program,
                                   std::chrono::nanoseconds deadline = std::chrono::minutes(1)) {
  Findings findings;
  shardwright::LaunchOptions options;
  options.ranks = ranks;
  options.deadline = deadline;
  launch_ranks(options, [&](shardwright::HostCommunicator world) { program(std::move(world), findings); });
  return findings.checks() == 0 ? "nothing was checked" : findings.text();
}

} // namespace shardwright_test
