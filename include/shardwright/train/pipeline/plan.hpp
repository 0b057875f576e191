// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's steps of a schedule with their messages, as executed by a runner.

#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>
#include <shardwright/train/gradient/pass_position.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The address of a pipeline's message. Tags encode stage, direction and microbatch; where messages match by
/// order instead, their turns do.
struct PipelineMessage {
  enum class Kind : unsigned char { none, local, remote };
  Kind kind = Kind::none;
  int peer = 0;
  int tag = 0;
  std::size_t slot = 0;    ///< Of an input, or of the local input to which an output is passed.
  std::size_t channel = 0; ///< Of a remote output.
  StageMessage handed{};   ///< If remote.
};

struct PlannedAction {
  Action action{};
  int chunk = 0;
  PipelineMessage input, output;
  bool ends_forwards = false;                   ///< The chunk's last forward.
  PassPosition position = PassPosition::middle; ///< Among the chunk's passes that add weight gradients.
  std::optional<Pass> next_of_chunk{}; ///< The next pass that reads the weights of the chunk's stage.
};

struct PlannedStep {
  std::array<PlannedAction, 2> actions;
  int count = 1;
};

/// The steps of one rank of a proven schedule; `slots` inputs and `channels` (a destination in a direction)
/// are numbered from 0.
struct PipelinePlan {
  std::vector<PlannedStep> steps;
  std::size_t slots = 0;
  std::size_t channels = 0;
  int chunks = 0;
  int microbatches = 0;
  int lowest = 0; ///< The first stage to which gradients are sent, as far as this rank takes part.

  PipelinePlan(const Schedule& schedule, int rank, int lowest_stage = 0);

  /// The steps of the first `wanted` microbatches, if the schedule is a forward_schedule().
  [[nodiscard]] std::span<const PlannedStep> first_steps(int wanted) const;

  /// All forwards of `count` microbatches by microbatch, then stage.
  [[nodiscard]] static Schedule forward_schedule(const Schedule& schedule, int count);

private:
  void place_passes();

  [[nodiscard]] PlannedAction plan(const Action& action);

  /// A message as seen from one end; `chunk` is that of the consuming stage.
  [[nodiscard]] PipelineMessage message(const StageMessage& handed, int peer, int chunk) const;
  [[nodiscard]] std::size_t slot(int chunk, int microbatch, int direction) const noexcept {
    return static_cast<std::size_t>((chunk * microbatches + microbatch) * 2 + direction);
  }
  [[nodiscard]] std::size_t channel(int peer, int direction);

  StagePlacement placement_;
  std::vector<std::array<int, 2>> destinations_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE PipelinePlan::PipelinePlan(const Schedule& schedule, int rank, int lowest_stage)
    : chunks(schedule.placement().chunks), microbatches(schedule.microbatches()), lowest(lowest_stage),
      placement_(schedule.placement()) {
  slots = 2 * static_cast<std::size_t>(chunks) * static_cast<std::size_t>(microbatches);
  for (const Step& step : schedule.steps(rank)) {
    PlannedStep& planned = steps.emplace_back();
    planned.count = step.size();
    for (int i = 0; i < planned.count; ++i)
      planned.actions[static_cast<std::size_t>(i)] = plan(step[i]);
  }
  channels = destinations_.size();
  place_passes();
}

SHARDWRIGHT_INLINE void PipelinePlan::place_passes() {
  std::vector<bool> forwards_end(static_cast<std::size_t>(chunks), false);
  std::vector<PassPosition> before(static_cast<std::size_t>(chunks), PassPosition::last);
  std::vector<std::optional<Pass>> next(static_cast<std::size_t>(chunks));
  for (std::size_t s = steps.size(); s-- > 0;)
    for (int i = steps[s].count; i-- > 0;) {
      PlannedAction& planned = steps[s].actions[static_cast<std::size_t>(i)];
      const auto chunk = static_cast<std::size_t>(planned.chunk);
      planned.ends_forwards = planned.action.pass == Pass::forward && !forwards_end[chunk];
      if (makes_weight_gradient(planned.action.pass))
        planned.position = std::exchange(before[chunk], PassPosition::middle);
      forwards_end[chunk] = forwards_end[chunk] || planned.ends_forwards;
      planned.next_of_chunk = next[chunk];
      if (planned.action.pass != Pass::weight_gradient)
        next[chunk] = planned.action.pass;
    }
}

SHARDWRIGHT_INLINE PlannedAction PipelinePlan::plan(const Action& action) {
  PlannedAction out;
  out.action = action;
  out.chunk = placement_.chunk_of(action.stage, action.microbatch);
  if (const auto in = input_of(placement_, action); in && in->reaches(lowest))
    out.input = message(*in, in->from_rank, out.chunk);
  if (const auto made = output_of(placement_, action); made && made->reaches(lowest)) {
    out.output = message(*made, made->to_rank, placement_.chunk_of(made->to_stage(), made->microbatch));
    if (made->is_sent())
      out.output.channel = channel(made->to_rank, made->gradient ? 1 : 0);
  }
  return out;
}

SHARDWRIGHT_INLINE Schedule PipelinePlan::forward_schedule(const Schedule& schedule, int count) {
  const StagePlacement& placement = schedule.placement();
  std::vector<std::vector<Step>> steps(static_cast<std::size_t>(placement.ranks));
  for (int microbatch = 0; microbatch < count; ++microbatch)
    for (int stage = 0; stage < schedule.stages(); ++stage)
      steps[static_cast<std::size_t>(placement.rank_of(stage, microbatch))].push_back(
          {{Pass::forward, stage, microbatch}, {}, false});
  return {schedule.name(), placement, count, std::move(steps), schedule.window()};
}

SHARDWRIGHT_INLINE std::span<const PlannedStep> PipelinePlan::first_steps(int wanted) const {
  const auto end = std::find_if(steps.begin(), steps.end(), [&](const PlannedStep& step) {
    return step.actions.front().action.microbatch >= wanted;
  });
  return {steps.begin(), end};
}

SHARDWRIGHT_INLINE PipelineMessage PipelinePlan::message(const StageMessage& handed, int peer,
                                                         int chunk) const {
  PipelineMessage out;
  out.kind = handed.is_sent() ? PipelineMessage::Kind::remote : PipelineMessage::Kind::local;
  out.peer = peer;
  out.handed = handed;
  out.tag = (handed.stage * 2 + (handed.gradient ? 1 : 0)) * microbatches + handed.microbatch;
  out.slot = slot(chunk, handed.microbatch, handed.gradient ? 1 : 0);
  return out;
}

SHARDWRIGHT_INLINE std::size_t PipelinePlan::channel(int peer, int direction) {
  const std::array<int, 2> destination{peer, direction};
  const auto found = std::find(destinations_.begin(), destinations_.end(), destination);
  if (found != destinations_.end())
    return static_cast<std::size_t>(found - destinations_.begin());
  destinations_.push_back(destination);
  return destinations_.size() - 1;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
