// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The losses that a schedule supports: one that needs the whole batch requires all forward passes
/// first.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/schedule.hpp>

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

/// @brief A run-time schedule that has been checked to run all forward passes first.
class ForwardsFirstSchedule : public Schedule {
public:
  /// @throws InvalidArgument if a rank has a forward after a backward.
  explicit ForwardsFirstSchedule(Schedule schedule) : Schedule(std::move(schedule)) {
    if (!forwards_first(*this))
      throw InvalidArgument(
          "schedule " + name() +
          ": a loss that needs the whole batch must run under a schedule whose forwards all precede its backwards (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)");
  }
};

/// @brief Any schedule, preceded by an extra forward pass of all microbatches that keeps nothing, so that
/// statistics of the whole batch are known before its first backward pass. Costs a forward pass of every
/// microbatch, and no memory.
class CountingFirst : public Schedule {
public:
  explicit CountingFirst(Schedule schedule) : Schedule(std::move(schedule)) {}
};

namespace detail {

template <class Schedule> struct AllForwardsFirst : std::false_type {};
template <class Policy>
struct AllForwardsFirst<PolicySchedule<Policy>> : std::bool_constant<Policy::forwards_first> {};
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

/// @brief Checks at compile time, for a runner, that a schedule supports a loss.
///
/// For a schedule chosen at run time, ForwardsFirstSchedule or CountingFirst gives the type that a loss over
/// the batch needs.
template <class Loss, class Schedule>
inline constexpr bool
    carries_loss = sizeof(detail::LossUnder<Loss, std::remove_cvref_t<Schedule>,
                                            !WholeBatchLoss<Loss> || all_forwards_first<Schedule> ||
                                                detail::counts_first<std::remove_cvref_t<Schedule>>>) != 0;

} // namespace shardwright::inline SHARDWRIGHT_ABI
