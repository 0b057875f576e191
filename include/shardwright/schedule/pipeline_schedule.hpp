// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Proves that a schedule is complete, ordered and free of deadlock, and computes its memory and time.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/coverage.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/proof.hpp>
#include <shardwright/schedule/schedule_policy.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/simulation.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The orders of a policy for given numbers of ranks and microbatches, generated step by step and
/// never stored.
template <class Policy> class PolicyOrders {
  static_assert(sizeof(detail::PolicyOf<Policy>) != 0);

public:
  /// @throws InvalidArgument if the policy does not allow the numbers, with the nearest legal values.
  constexpr PolicyOrders(std::int64_t ranks, std::int64_t microbatches)
      : ranks_(detail::schedule_extent(Policy::name, ScheduleExtent::ranks, ranks)),
        microbatches_(detail::schedule_extent(Policy::name, ScheduleExtent::microbatches, microbatches)) {
    detail::check_schedule_rule<Policy>(ranks_, microbatches_);
  }
  [[nodiscard]] constexpr StagePlacement placement() const {
    return Policy::placement(ranks_, microbatches_);
  }
  [[nodiscard]] constexpr int microbatches() const noexcept { return microbatches_; }
  [[nodiscard]] constexpr auto cursor(int rank) const { return Policy::cursor(ranks_, microbatches_, rank); }
  /// @brief The window that a runner needs, which is the default one unless the policy asks for another.
  [[nodiscard]] constexpr MessageWindow window() const {
    return message_window<Policy>(ranks_, microbatches_);
  }

private:
  int ranks_;
  int microbatches_;
};

namespace detail {

template <class Source>
[[nodiscard]] constexpr Proof concluded(const Source& source, const Simulation<Source>& simulation) {
  Proof proof;
  const int ranks = source.placement().ranks;
  for (int rank = 0; rank < ranks; ++rank)
    proof.makespan = std::max(proof.makespan, simulation.proof_of(rank).end);
  for (int rank = 0; rank < ranks; ++rank) {
    const RankProof& one = simulation.proof_of(rank);
    proof.peak_in_flight = std::max(proof.peak_in_flight, one.peak_in_flight);
    proof.peak_until_input_gradient =
        std::max(proof.peak_until_input_gradient, one.peak_until_input_gradient);
    proof.bubble = std::max(proof.bubble, proof.makespan - one.busy);
    proof.stall = std::max(proof.stall, one.stall());
  }
  ScheduleFailure waiting{};
  for (int rank = 0; rank < ranks && waiting.fault == ScheduleFault::none; ++rank)
    if (const MessageWait wait = simulation.wait_of(rank); wait.step >= 0)
      waiting = {ScheduleFault::deadlock, rank, wait.step, wait.action, action_of(wait.message)};
  if (simulation.failure().fault == ScheduleFault::none && simulation.left() == 0 &&
      waiting.fault == ScheduleFault::none) {
    proof.complete = proof.ordered = proof.deadlock_free = true;
    return proof;
  }
  const ScheduleFailure covered = uncovered(source);
  proof.complete = covered.fault == ScheduleFault::none;
  proof.ordered = simulation.failure().fault == ScheduleFault::none;
  proof.deadlock_free = proof.ordered && waiting.fault == ScheduleFault::none;
  // A missing action makes others wait, so it is reported first; a wait is at fault only if nothing else is.
  proof.failure = !proof.complete ? covered : !proof.ordered ? simulation.failure() : waiting;
  return proof;
}

} // namespace detail

/// @brief Proves any source of orders (a Schedule, or PolicyOrders).
/// @param ranks where not empty, receives how many microbatches each rank keeps and how long it works.
/// @param watch called as (rank, step, start, end) for every step, each rank's in its order.
template <class Source, class Watch>
[[nodiscard]] constexpr Proof prove(const Source& source, const PassCosts& costs, const MessageWindow& window,
                                    std::span<RankProof> ranks, const Watch& watch) {
  detail::Simulation<Source> simulation(source, costs, window);
  simulation.run(watch);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank] = simulation.proof_of(static_cast<int>(rank));
  return detail::concluded(source, simulation);
}

/// @brief Proves any source of orders, with F = I = W = 1, instant sends and its own window unless given.
template <class Source>
[[nodiscard]] constexpr Proof prove(const Source& source, const PassCosts& costs = {}) {
  return prove(source, costs, source.window(), {}, [](int, const Step&, double, double) {});
}
template <class Source>
[[nodiscard]] constexpr Proof prove(const Source& source, const PassCosts& costs, const MessageWindow& window,
                                    std::span<RankProof> ranks = {}) {
  return prove(source, costs, window, ranks, [](int, const Step&, double, double) {});
}

namespace detail {

template <ScheduleFault fault, int rank, int step, Pass pass, int stage, int microbatch>
struct ScheduleFaultAt {
  static_assert(
      fault == ScheduleFault::none || fault == ScheduleFault::deadlock ||
          fault == ScheduleFault::out_of_order,
      "PipelineSchedule: every microbatch must pass once through every stage, each W after its I, on the rank of the stage (add or move the action that ScheduleFaultAt names in the trace)");
  static_assert(
      fault != ScheduleFault::out_of_order,
      "PipelineSchedule: an action must come after those of its own rank that it needs (move the action that ScheduleFaultAt names in the trace)");
  static_assert(
      fault != ScheduleFault::deadlock,
      "PipelineSchedule: ranks must not wait for one another (ScheduleFaultAt in the trace names a rank, its step and what it waits for; the proof at run time prints the cycle)");
};

/// The proof of a policy for numbers that the compiler knows; only those that hold compile.
template <class Policy, int ranks, int microbatches> struct ProvenAt {
  static_assert(sizeof(PolicyOf<Policy>) != 0);
  static_assert(sizeof(StaticRule<Policy, ranks, microbatches>) != 0);
  static constexpr Proof proof = [] {
    if constexpr (schedule_rule<Policy>(ranks, microbatches).holds())
      return shardwright::prove(PolicyOrders<Policy>(ranks, microbatches));
    else
      return Proof{};
  }();
  static constexpr ScheduleFailure failure = proof.failure;
  static_assert(sizeof(ScheduleFaultAt<failure.fault, failure.rank, failure.step, failure.needed.pass,
                                       failure.needed.stage, failure.needed.microbatch>) != 0);
};

/// Policies with fixed numbers of ranks and microbatches are proven where they are named.
template <class Policy> struct ProvenWhereFixed {};
template <class Policy>
requires(Policy::ranks > 0 && Policy::microbatches > 0) struct ProvenWhereFixed<Policy>
    : ProvenAt<Policy, Policy::ranks, Policy::microbatches> {
};

} // namespace detail

/// @brief A pipeline schedule described by a policy; one from CsvSchedule compiles only if its proof holds.
template <class Policy> struct PipelineSchedule : detail::ProvenWhereFixed<Policy> {
  static_assert(sizeof(detail::PolicyOf<Policy>) != 0);
  using policy = Policy;

  /// @brief Proves the schedule for numbers of ranks and microbatches, at compile time or at run time.
  /// @throws InvalidArgument if the policy does not allow them, with the nearest legal values.
  [[nodiscard]] static constexpr Proof prove(std::int64_t ranks, std::int64_t microbatches,
                                             const PassCosts& costs = {}) {
    return shardwright::prove(PolicyOrders<Policy>(ranks, microbatches), costs);
  }
  [[nodiscard]] static constexpr Proof prove(std::int64_t ranks, std::int64_t microbatches,
                                             const PassCosts& costs, const MessageWindow& window,
                                             std::span<RankProof> per_rank = {}) {
    return shardwright::prove(PolicyOrders<Policy>(ranks, microbatches), costs, window, per_rank);
  }

  /// @brief The schedule for compile-time numbers; numbers that the policy does not allow do not compile.
  template <int ranks, int microbatches> [[nodiscard]] static constexpr PolicyOrders<Policy> with() {
    static_assert(sizeof(detail::StaticRule<Policy, ranks, microbatches>) != 0);
    return {ranks, microbatches};
  }
};

/// @brief True if a policy holds for numbers that the compiler knows; otherwise it does not compile, and the
/// message says which fault is where: `static_assert(proven<ZBV, 4, 8>)`.
template <class Policy, int ranks, int microbatches>
inline constexpr bool proven = detail::ProvenAt<Policy, ranks, microbatches>::proof.holds();

} // namespace shardwright::inline SHARDWRIGHT_ABI
