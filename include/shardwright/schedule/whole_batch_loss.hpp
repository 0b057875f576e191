// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The losses that a schedule can carry: one that needs the whole batch needs all forwards first.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A loss whose backward needs statistics of the whole batch, and says so.
///
/// Such as a load-balancing loss over all microbatches: it declares
/// `static constexpr bool needs_whole_batch = true`.
template <class Loss>
concept WholeBatchLoss = requires {
  requires Loss::needs_whole_batch;
};

/// @brief A schedule whose policy the compiler does not know, but which has all forwards first.
class ForwardsFirstSchedule : public Schedule {
public:
  /// @throws InvalidArgument where a rank has a forward after a backward.
  explicit ForwardsFirstSchedule(Schedule schedule) : Schedule(std::move(schedule)) {
    if (!forwards_first(*this))
      throw InvalidArgument(
          "schedule " + name() +
          ": a loss that needs the whole batch must run under a schedule whose forwards all precede its backwards (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)");
  }
};

/// @brief Any schedule, before which all forwards run once more and keep nothing: the statistics of the whole
/// batch are then known before its first backward. Costs a forward pass of every microbatch, and no memory.
class CountingFirst : public Schedule {
public:
  explicit CountingFirst(Schedule schedule) : Schedule(std::move(schedule)) {}
};

namespace detail {

template <class Schedule>
struct AllForwardsFirst : std::false_type {};
template <class Policy>
struct AllForwardsFirst<PolicySchedule<Policy>> : std::bool_constant<Policy::forwards_first> {};
template <>
struct AllForwardsFirst<ForwardsFirstSchedule> : std::true_type {};

template <class Schedule>
inline constexpr bool counts_first = std::is_base_of_v<CountingFirst, Schedule>;

template <class Loss, class Schedule, bool carried>
struct LossUnder {
  static_assert(
      carried,
      "Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all precede its backwards (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)");
};

} // namespace detail

/// @brief True where the type of a schedule says that all its forwards precede all its backwards.
template <class Schedule>
inline constexpr bool all_forwards_first = detail::AllForwardsFirst<std::remove_cvref_t<Schedule>>::value;

/// @brief Checks, for a runner, that a schedule can carry a loss; it does not compile where it cannot.
///
/// For a schedule chosen at run time, ForwardsFirstSchedule makes the type that a loss over the batch needs;
/// CountingFirst makes it of any schedule.
template <class Loss, class Schedule>
inline constexpr bool
    carries_loss = sizeof(detail::LossUnder<Loss, std::remove_cvref_t<Schedule>,
                                            !WholeBatchLoss<Loss> || all_forwards_first<Schedule> ||
                                                detail::counts_first<std::remove_cvref_t<Schedule>>>) != 0;

} // namespace shardwright::inline SHARDWRIGHT_ABI
