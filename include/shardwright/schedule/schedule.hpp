// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A whole schedule as a value: the steps of every rank, made from a policy.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/schedule_policy.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The steps of every rank in order; a pipeline runner executes them once they are proven.
class Schedule {
public:
  /// @brief Iterates over the steps of one rank.
  class Cursor {
  public:
    Cursor() = default;
    explicit Cursor(std::span<const Step> steps) : steps_(steps) {}

    /// @brief The next step of the rank; false at its end.
    bool next(Step& step) {
      if (steps_.empty())
        return false;
      step = steps_.front();
      steps_ = steps_.subspan(1);
      return true;
    }

  private:
    std::span<const Step> steps_{};
  };

  /// @brief Steps of rank 0, 1, ..., as given; `prove` checks them.
  Schedule(std::string name, StagePlacement placement, int microbatches, std::vector<std::vector<Step>> steps,
           MessageWindow window = {})
      : name_(std::move(name)), placement_(placement), microbatches_(microbatches), steps_(std::move(steps)),
        window_(window) {}
  /// @brief The same steps in another window.
  Schedule(Schedule other, const MessageWindow& window) : Schedule(std::move(other)) { window_ = window; }

  /// @brief Name of its policy, or of its source.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const StagePlacement& placement() const noexcept { return placement_; }
  [[nodiscard]] int ranks() const noexcept { return placement_.ranks; }
  [[nodiscard]] int stages() const noexcept { return placement_.stages(); }
  [[nodiscard]] int microbatches() const noexcept { return microbatches_; }
  /// @brief Order of one rank, 0 <= rank < ranks().
  [[nodiscard]] std::span<const Step> steps(int rank) const { return steps_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Cursor cursor(int rank) const { return Cursor(steps(rank)); }
  /// @brief The window in which a runner must issue its messages; `prove` assumes the same one.
  [[nodiscard]] const MessageWindow& window() const noexcept { return window_; }
  /// @brief Whether a counting pass precedes it: see CountingFirst.
  [[nodiscard]] bool counts_first() const noexcept { return counts_first_; }

protected:
  void count_first() noexcept { counts_first_ = true; }

private:
  std::string name_;
  StagePlacement placement_;
  int microbatches_;
  std::vector<std::vector<Step>> steps_;
  MessageWindow window_;
  bool counts_first_ = false;
};

/// @brief Returns whether all forwards precede all backwards on every rank.
[[nodiscard]] inline bool forwards_first(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    if (!detail::forwards_come_first(schedule.cursor(rank)))
      return false;
  return true;
}

/// @brief The schedule of a policy that the compiler knows.
template <class Policy> class PolicySchedule : public Schedule {
public:
  using policy = Policy;
  using Schedule::Schedule;
};

/// @brief The largest number of forward passes, stages times microbatches, that a schedule made or read at
/// run time may have: about 200 MB.
inline constexpr std::int64_t most_forward_passes = std::int64_t{1} << 21;

namespace detail {

[[noreturn]] void fail_schedule_size(const std::string& subject, std::int64_t stages,
                                     std::int64_t microbatches);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void fail_schedule_size(const std::string& subject, std::int64_t stages,
                                           std::int64_t microbatches) {
  throw InvalidArgument(subject + ": there must be at most " + std::to_string(most_forward_passes) +
                        " forward passes, but " + std::to_string(stages) + " stages times " +
                        std::to_string(microbatches) + " microbatches are more (take fewer of either)");
}
#endif

} // namespace detail

/// @brief The schedule of a policy for numbers of ranks and microbatches.
/// @throws InvalidArgument if the policy does not allow them, with the nearest legal values, or if there are
/// more than `most_forward_passes`.
/// @param chunks per rank, for an interleaved policy whose number is known at run time only
template <class Policy, class... Chunks>
[[nodiscard]] PolicySchedule<Policy> make_schedule(std::int64_t all_ranks, std::int64_t all_microbatches,
                                                   const Chunks&... chunks) {
  static_assert(sizeof(detail::PolicyOf<Policy>) != 0);
  const int ranks = detail::schedule_extent(Policy::name, ScheduleExtent::ranks, all_ranks);
  const int microbatches =
      detail::schedule_extent(Policy::name, ScheduleExtent::microbatches, all_microbatches);
  if (ranks > 0 && microbatches > 0) {
    const StagePlacement placement = Policy::placement(ranks, microbatches, chunks...);
    const std::int64_t stages = std::int64_t{ranks} * placement.chunks;
    if (stages > most_forward_passes / microbatches)
      detail::fail_schedule_size(std::string(Policy::name), stages, microbatches);
  }
  detail::check_schedule_rule<Policy>(ranks, microbatches);
  std::vector<std::vector<Step>> steps(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    auto cursor = Policy::cursor(ranks, microbatches, rank, chunks...);
    for (Step step; cursor.next(step);)
      steps[static_cast<std::size_t>(rank)].push_back(step);
  }
  return {std::string(Policy::name), Policy::placement(ranks, microbatches, chunks...), microbatches,
          std::move(steps), message_window<Policy>(ranks, microbatches)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
