// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's steps of a schedule with the messages that they need: what a runner carries out.

#include <shardwright/core/error.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A message of a pipeline. Tags say boundary, direction and microbatch, so messages never match by order.
struct PipelineMessage {
  enum class Kind : unsigned char { none, local, remote };
  Kind kind = Kind::none;
  int peer = 0;
  int tag = 0;
  std::size_t slot = 0;    ///< Of an input, or of the local input that an output becomes.
  std::size_t channel = 0; ///< Of a remote output.
};

struct PlannedAction {
  Action action{};
  int chunk = 0;
  PipelineMessage input, output;
  bool ends_forwards = false;  ///< The chunk's last forward.
  bool ends_gradients = false; ///< The chunk's last pass that adds weight gradients.
};

struct PlannedStep {
  std::array<PlannedAction, 2> actions;
  int count = 1;
};

/// The steps of one rank; `slots` inputs and `channels` (a destination in a direction) are numbered from 0.
struct PipelinePlan {
  std::vector<PlannedStep> steps;
  std::vector<PlannedAction> forwards; ///< All forwards of the rank by microbatch, then stage.
  std::size_t slots = 0;
  std::size_t channels = 0;
  int chunks = 0;
  int microbatches = 0;

  PipelinePlan(const Schedule& schedule, int rank)
      : chunks(schedule.placement().chunks), microbatches(schedule.microbatches()), schedule_(&schedule),
        rank_(rank) {
    slots = 2 * static_cast<std::size_t>(chunks) * static_cast<std::size_t>(microbatches);
    for (const Step& step : schedule.steps(rank)) {
      PlannedStep& planned = steps.emplace_back();
      planned.count = step.size();
      for (int i = 0; i < planned.count; ++i)
        planned.actions[static_cast<std::size_t>(i)] = plan(step[i]);
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch)
      for (int stage = 0; stage < schedule.stages(); ++stage)
        if (schedule.placement().rank_of(stage, microbatch) == rank)
          forwards.push_back(plan({Pass::forward, stage, microbatch}));
    channels = destinations_.size();
    find_last_passes();
  }

private:
  void find_last_passes() {
    std::vector<bool> forwards_end(static_cast<std::size_t>(chunks), false);
    std::vector<bool> gradients_end(static_cast<std::size_t>(chunks), false);
    for (std::size_t s = steps.size(); s-- > 0;)
      for (int i = steps[s].count; i-- > 0;) {
        PlannedAction& planned = steps[s].actions[static_cast<std::size_t>(i)];
        const auto chunk = static_cast<std::size_t>(planned.chunk);
        planned.ends_forwards = planned.action.pass == Pass::forward && !forwards_end[chunk];
        planned.ends_gradients = makes_weight_gradient(planned.action.pass) && !gradients_end[chunk];
        forwards_end[chunk] = forwards_end[chunk] || planned.ends_forwards;
        gradients_end[chunk] = gradients_end[chunk] || planned.ends_gradients;
      }
  }

  [[nodiscard]] PlannedAction plan(const Action& action) {
    const StagePlacement& placement = schedule_->placement();
    const int last = placement.stages() - 1;
    PlannedAction out;
    out.action = action;
    out.chunk = placement.chunk_of(action.stage, action.microbatch);
    if (placement.rank_of(action.stage, action.microbatch) != rank_) {
      throw InvalidArgument("PipelineRunner: rank " + std::to_string(rank_) +
                            " must hold the stages of its steps, but " + letter_of(action.pass) +
                            " of microbatch " + std::to_string(action.microbatch) + " runs on stage " +
                            std::to_string(action.stage) + ", which rank " +
                            std::to_string(placement.rank_of(action.stage, action.microbatch)) +
                            " holds (prove the schedule first)");
    }
    const int stage = action.stage;
    if (action.pass == Pass::forward) {
      if (stage > 0)
        out.input = message(stage - 1, action, 0, out.chunk);
      if (stage < last)
        out.output = message(stage + 1, action, 0, out.chunk);
    } else if (makes_input_gradient(action.pass)) {
      if (stage < last)
        out.input = message(stage + 1, action, 1, out.chunk);
      if (stage > 0)
        out.output = message(stage - 1, action, 1, out.chunk);
    }
    if (out.output.kind == PipelineMessage::Kind::local)
      out.output.slot =
          slot(placement.chunk_of(action.stage + (action.pass == Pass::forward ? 1 : -1), action.microbatch),
               action.microbatch, action.pass == Pass::forward ? 0 : 1);
    if (out.output.kind == PipelineMessage::Kind::remote)
      out.output.channel = channel(out.output.peer, action.pass == Pass::forward ? 0 : 1);
    return out;
  }

  /// The message between the action's stage and `other`; `direction` is 1 for gradients.
  [[nodiscard]] PipelineMessage message(int other, const Action& action, int direction, int chunk) const {
    PipelineMessage out;
    out.peer = schedule_->placement().rank_of(other, action.microbatch);
    out.kind = out.peer == rank_ ? PipelineMessage::Kind::local : PipelineMessage::Kind::remote;
    out.tag = (std::min(other, action.stage) * 2 + direction) * microbatches + action.microbatch;
    out.slot = slot(chunk, action.microbatch, direction);
    return out;
  }
  [[nodiscard]] std::size_t slot(int chunk, int microbatch, int direction) const noexcept {
    return static_cast<std::size_t>((chunk * microbatches + microbatch) * 2 + direction);
  }
  [[nodiscard]] std::size_t channel(int peer, int direction) {
    const std::array<int, 2> destination{peer, direction};
    const auto found = std::find(destinations_.begin(), destinations_.end(), destination);
    if (found != destinations_.end())
      return static_cast<std::size_t>(found - destinations_.begin());
    destinations_.push_back(destination);
    return destinations_.size() - 1;
  }

  const Schedule* schedule_; // used while planning alone
  int rank_;
  std::vector<std::array<int, 2>> destinations_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
