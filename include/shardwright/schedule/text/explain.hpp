// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Explains why a schedule does not hold: the missing dependency, or the cycle of waiting ranks.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv_text.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// "rank 1 at step 4 waits for 0F3 of rank 0"
[[nodiscard]] inline std::string wait_text(int rank, const MessageWait& wait) {
  const StageMessage& awaited = wait.message;
  const std::string message = !awaited.gradient
                                  ? text_of(action_of(awaited))
                                  : "the input gradient of stage " + std::to_string(awaited.stage) +
                                        " and microbatch " + std::to_string(awaited.microbatch);
  const std::string who = "rank " + std::to_string(rank) + " at step " + std::to_string(wait.step);
  const std::string other = "rank " + std::to_string(wait.on());
  return wait.sending ? who + " waits for " + other + " to receive " + message
                      : who + " (" + text_of(wait.action) + ") waits for " + message + " from " + other;
}

/// The ranks that wait for one another in a cycle, from the first rank that a chain of waits returns to.
template <class Source>
[[nodiscard]] std::string cycle_text(const Simulation<Source>& simulation, int rank, int ranks) {
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  while (rank >= 0 && !seen[static_cast<std::size_t>(rank)]) {
    seen[static_cast<std::size_t>(rank)] = true;
    rank = simulation.wait_of(rank).on();
  }
  if (rank < 0)
    return "no rank can continue";
  std::string out;
  const int first = rank;
  do {
    const MessageWait wait = simulation.wait_of(rank);
    out += (out.empty() ? "" : "; ") + wait_text(rank, wait);
    rank = wait.on();
  } while (rank != first);
  return out;
}

} // namespace detail

/// @brief Explains in a sentence why a source of orders does not hold with a window; empty if it does.
template <class Source> [[nodiscard]] std::string explain(const Source& source, const MessageWindow& window) {
  detail::Simulation<Source> simulation(source, {}, window);
  simulation.run([](int, const Step&, double, double) {});
  const Proof proof = detail::concluded(source, simulation);
  const ScheduleFailure& failure = proof.failure;
  const std::string at = "rank " + std::to_string(failure.rank) + ", step " + std::to_string(failure.step) +
                         ": " + text_of(failure.action);
  switch (failure.fault) {
  case ScheduleFault::none:
    return "";
  case ScheduleFault::unknown:
    return at + " names a stage or a microbatch that does not exist";
  case ScheduleFault::misplaced:
    return at + " is on a rank that does not hold its stage (rank " +
           std::to_string(source.placement().rank_of(failure.action.stage, failure.action.microbatch)) +
           " does)";
  case ScheduleFault::repeated:
    return at + " appears there a second time";
  case ScheduleFault::missing:
    return text_of(failure.action) + " is missing on rank " + std::to_string(failure.rank) +
           ", and what depends on it waits forever";
  case ScheduleFault::out_of_order:
    return at + " comes before " + text_of(failure.needed) + ", which it needs, on the same rank";
  case ScheduleFault::deadlock:
    break;
  }
  std::string out =
      "ranks wait for one another: " + detail::cycle_text(simulation, failure.rank, source.placement().ranks);
  for (int sends = 2 * window.sends_in_flight; sends <= 2 * source.microbatches(); sends *= 2)
    if (prove(source, {}, {window.receive_ahead, sends}).holds())
      return out + " (with " + std::to_string(sends) + " sends in flight they would not)";
  return out;
}

/// @brief Proves a schedule before it is run.
/// @throws InvalidArgument naming the missing dependency or the ranks that wait for one another.
[[nodiscard]] Proof require_proof(const Schedule& schedule, const PassCosts& costs = {});

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE Proof require_proof(const Schedule& schedule, const PassCosts& costs) {
  const Proof proof = prove(schedule, costs);
  if (!proof.holds())
    throw InvalidArgument("schedule " + schedule.name() + " of " + std::to_string(schedule.microbatches()) +
                          " microbatches cannot be run: " + explain(schedule, schedule.window()));
  return proof;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
