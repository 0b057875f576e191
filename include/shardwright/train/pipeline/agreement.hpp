// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares the schedules that the ranks of a pipeline give.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Requires one schedule on all ranks: those with different ones would wait for messages that never arrive.
/// Collective; cost: 72 bytes for each rank, and two waits.
/// @throws ConfigurationMismatch on every rank, naming the first number or the first step that differs.
void require_same_schedule(HostCommunicator ranks, const Schedule& schedule,
                           SourceLocation where = SourceLocation::current());

#if !defined(SHARDWRIGHT_COMPILED)
/// A step as integers: how many actions it has, then the pass, the stage and the microbatch of each. The end
/// of a rank's order is a step without actions.
using StepNumbers = std::array<std::int32_t, 7>;

[[nodiscard]] inline StepNumbers numbers_of(const Step& step) noexcept {
  StepNumbers out{step.size()};
  for (int i = 0; i < step.size(); ++i) {
    const auto at = static_cast<std::size_t>(1 + 3 * i);
    out[at] = static_cast<std::int32_t>(step[i].pass);
    out[at + 1] = step[i].stage;
    out[at + 2] = step[i].microbatch;
  }
  return out;
}

/// A step in words, from its numbers.
[[nodiscard]] inline std::string step_text(std::span<const std::int32_t, 7> numbers) {
  const auto action = [numbers](std::size_t at) {
    return Action{static_cast<Pass>(numbers[at]), numbers[at + 1], numbers[at + 2]};
  };
  return numbers[0] == 0 ? "missing" : text_of(Step{action(1), action(4), numbers[0] == 2});
}

/// Calls `visit(numbers)` for the steps of rank 0, 1, ..., and for the end of each.
template <class Visit> void visit_steps(const Schedule& schedule, Visit visit) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Step& step : schedule.steps(rank))
      visit(numbers_of(step));
    visit(StepNumbers{});
  }
}

/// All numbers of the schedule that a rank gives, on every rank. Collective.
[[nodiscard]] inline std::vector<std::int32_t>
steps_given_by(HostCommunicator& ranks, int rank, const Schedule& schedule, SourceLocation where) {
  std::vector<std::int32_t> out;
  if (ranks.rank() == rank)
    visit_steps(schedule,
                [&out](const StepNumbers& step) { out.insert(out.end(), step.begin(), step.end()); });
  std::array<std::int64_t, 1> size{static_cast<std::int64_t>(out.size())};
  ranks.broadcast(size, rank, where);
  out.resize(static_cast<std::size_t>(size[0]));
  ranks.broadcast(out, rank, where);
  return out;
}

/// Where the schedules of rank 0 and of another rank first differ, in words. Collective.
/// @pre they differ, in steps but not in the number of ranks
[[nodiscard]] inline std::string first_difference(HostCommunicator& ranks, int other,
                                                  const Schedule& schedule, SourceLocation where) {
  const std::vector<std::int32_t> first = steps_given_by(ranks, 0, schedule, where),
                                  second = steps_given_by(ranks, other, schedule, where);
  constexpr std::size_t width = std::tuple_size_v<StepNumbers>;
  int rank = 0, step = 0;
  std::size_t at = 0;
  for (; std::equal(&first[at], &first[at] + width, &second[at]); at += width) {
    const bool ends = first[at] == 0;
    rank += ends ? 1 : 0;
    step = ends ? 0 : step + 1;
  }
  const auto text = [at](const std::vector<std::int32_t>& steps) {
    return step_text(std::span<const std::int32_t, width>(&steps[at], width));
  };
  return "step " + std::to_string(step) + " of rank " + std::to_string(rank) + " is " + text(first) +
         " in the schedule that rank " + std::to_string(ranks.world_rank(0)) + " gives, and " + text(second) +
         " in that of rank " + std::to_string(ranks.world_rank(other));
}

SHARDWRIGHT_INLINE void require_same_schedule(HostCommunicator ranks, const Schedule& schedule,
                                              SourceLocation where) {
  const StagePlacement& placement = schedule.placement();
  const std::array numbers{GivenNumber("number of stages", schedule.stages()),
                           GivenNumber("number of ranks", schedule.ranks()),
                           GivenNumber("number of microbatches", schedule.microbatches()),
                           GivenNumber("number of the order of stages", static_cast<int>(placement.order)),
                           GivenNumber("first microbatch of the second direction", placement.turn),
                           GivenNumber("number of steps to receive ahead", schedule.window().receive_ahead),
                           GivenNumber("number of sends in flight", schedule.window().sends_in_flight)};
  require_agreement(ranks, "PipelineRunner", numbers, where);
  if (ranks.size() == 1)
    return;
  Fnv1a hash;
  visit_steps(schedule, [&hash](const StepNumbers& step) {
    for (const std::int32_t number : step)
      hash.add(static_cast<std::uint64_t>(number));
  });
  const std::array order{GivenNumber("hash of the steps", hash.value())};
  const NumbersOfRanks hashes(ranks, "PipelineRunner", order, where);
  for (int rank = 1; rank < ranks.size(); ++rank)
    if (!hashes.alike(0, rank))
      hashes.reject("all ranks must give the same schedule, but " +
                    first_difference(ranks, rank, schedule, where) + " (make it from what all ranks share)");
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
