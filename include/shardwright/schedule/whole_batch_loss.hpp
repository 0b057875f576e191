// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The losses that a schedule supports: one that needs the whole batch requires all forward passes
/// first.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/schedule_rule.hpp>

#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A loss whose backward pass needs statistics of the whole batch, such as a load-balancing loss over
/// all microbatches.
///
/// It declares `static constexpr bool needs_whole_batch = true`.
template <class Loss>
concept WholeBatchLoss = requires {
  requires Loss::needs_whole_batch;
};

namespace detail {

/// Checks that a schedule chosen at run time supports a loss that needs the whole batch.
/// @throws InvalidArgument if a rank has a forward after a backward, and no counting pass precedes.
inline void require_whole_batch(const Schedule& schedule) {
  if (!schedule.counts_first() && !forwards_first(schedule))
    throw InvalidArgument(
        "schedule " + schedule.name() +
        ": a loss that needs the whole batch must run under a schedule whose forwards all precede its backwards (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)");
}

} // namespace detail

/// @brief A run-time schedule that has been checked to run all forward passes first.
class ForwardsFirstSchedule : public Schedule {
public:
  /// @throws InvalidArgument if a rank has a forward after a backward.
  explicit ForwardsFirstSchedule(Schedule schedule) : Schedule(std::move(schedule)) {
    detail::require_whole_batch(*this);
  }
};

/// @brief Any schedule, preceded by an extra forward pass of all microbatches that keeps nothing, so that
/// statistics of the whole batch are known before its first backward pass. Costs a forward pass of every
/// microbatch, and no memory.
class CountingFirst : public Schedule {
public:
  explicit CountingFirst(Schedule schedule) : Schedule(std::move(schedule)) { count_first(); }
};

namespace detail {

/// Legal numbers of ranks and microbatches near the given ones, more than one of each if the policy has them.
template <class Policy>
[[nodiscard]] constexpr std::pair<int, int> legal_extents(int ranks, int microbatches) {
  for (int changes = 0; changes < 4; ++changes) {
    const ScheduleRule rule = schedule_rule<Policy>(ranks, microbatches);
    if (rule.holds())
      return {ranks, microbatches};
    const NearestLegal nearest = nearest_values<Policy>(rule.about, ranks, microbatches);
    (rule.about == ScheduleExtent::ranks ? ranks : microbatches) =
        nearest.above > 0 ? nearest.above : nearest.below;
  }
  return {0, 0};
}

/// Whether a policy's order runs all forward passes first, for small legal numbers of ranks and microbatches;
/// a runner checks the order that it runs.
template <class Policy> [[nodiscard]] constexpr bool policy_runs_forwards_first() {
  std::pair<int, int> extents{};
  if constexpr (requires { // one order alone
                  Policy::ranks;
                  Policy::microbatches;
                })
    extents = {Policy::ranks, Policy::microbatches};
  else
    extents = legal_extents<Policy>(4, 16);
  for (int rank = 0; rank < extents.first; ++rank)
    if (!forwards_come_first(Policy::cursor(extents.first, extents.second, rank)))
      return false;
  return extents.first > 0;
}

template <class Schedule> struct AllForwardsFirst : std::false_type {};
/// A policy that the compiler cannot run does not guarantee it.
template <class Policy>
requires requires { typename std::bool_constant<policy_runs_forwards_first<Policy>()>; }
struct AllForwardsFirst<PolicySchedule<Policy>> : std::bool_constant<policy_runs_forwards_first<Policy>()> {};
template <> struct AllForwardsFirst<ForwardsFirstSchedule> : std::true_type {};

template <class Schedule> inline constexpr bool counts_first = std::is_base_of_v<CountingFirst, Schedule>;

template <class Loss, class Schedule, bool carried> struct LossUnder {
  static_assert(
      carried,
      "Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all precede its backwards (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)");
};

} // namespace detail

/// @brief True if the type of a schedule guarantees that all its forward passes precede all its backward
/// passes.
template <class Schedule>
inline constexpr bool all_forwards_first = detail::AllForwardsFirst<std::remove_cvref_t<Schedule>>::value;

namespace detail {

template <class Loss, class Schedule> [[nodiscard]] consteval bool supports() {
  if constexpr (WholeBatchLoss<Loss>)
    return all_forwards_first<Schedule> || counts_first<std::remove_cvref_t<Schedule>>;
  else
    return true;
}

} // namespace detail

/// @brief Checks at compile time, for a runner, that a schedule supports a loss.
///
/// For a schedule chosen at run time, ForwardsFirstSchedule or CountingFirst gives the type that a loss over
/// the batch needs.
template <class Loss, class Schedule>
inline constexpr bool carries_loss =
    sizeof(detail::LossUnder<Loss, std::remove_cvref_t<Schedule>, detail::supports<Loss, Schedule>()>) != 0;

} // namespace shardwright::inline SHARDWRIGHT_ABI
