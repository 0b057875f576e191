// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time of a simulated step in which each transfer has its links to itself.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/simulate/program.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Runs the program of a pipeline whose transfers share no links.
///
/// The ends of operations are then maxima and sums of others, whichever rank is computed first, so that there
/// are no events: each rank runs until it needs a message whose arrival is not known.
class UnsharedStep {
public:
  explicit UnsharedStep(const StepProgram& program)
      : program_(program), schedule_(program.schedule),
        slots_(std::max(schedule_.window().sends_in_flight, 1)), ranks_(program.ranks.size()),
        ends_(ranks_.size() * program.collectives.size()),
        channels_(ranks_.size() * static_cast<std::size_t>(4 * slots_), nullptr),
        messages_(2 * static_cast<std::size_t>(schedule_.stages()) *
                  static_cast<std::size_t>(schedule_.microbatches())) {}

  /// Infinity if a rank waits forever.
  [[nodiscard]] double seconds() {
    for (int rank = schedule_.ranks(); rank-- > 0;)
      wake(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      ranks_[static_cast<std::size_t>(rank)].queued = false;
      advance(rank);
    }
    double last = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      last = ranks_[rank].at < program_.ranks[rank].size() ? std::numeric_limits<double>::infinity()
                                                           : std::max(last, ranks_[rank].now);
    return last;
  }

private:
  using Kind = StepOperation::Kind;

  struct Rank {
    std::size_t at = 0;
    double now = 0, hidden = 0; ///< Ends of its last operation, and of the traffic that overlaps the next.
    int posted = 0;             ///< Steps whose receives have begun.
    int sent[4] = {};           ///< By channel: activations and gradients, each in both directions.
    bool queued = false;
  };
  /// When both ends were ready: negative while one is not.
  struct Message {
    double sent = -1, posted = -1;
  };
  [[nodiscard]] static bool moves(const Message& one) { return one.sent >= 0 && one.posted >= 0; }
  [[nodiscard]] double arrival(const Message& one) const {
    return std::max(one.sent, one.posted) + program_.send_seconds;
  }
  [[nodiscard]] Message& message_of(const StageMessage& one) {
    return messages_[2 * (static_cast<std::size_t>(one.stage) *
                              static_cast<std::size_t>(schedule_.microbatches()) +
                          static_cast<std::size_t>(one.microbatch)) +
                     (one.gradient ? 1 : 0)];
  }
  void wake(int rank) {
    if (bool& queued = ranks_[static_cast<std::size_t>(rank)].queued; !queued) {
      queued = true;
      runnable_.push_back(rank);
    }
  }

  void advance(int rank) {
    const std::vector<StepOperation>& operations = program_.ranks[static_cast<std::size_t>(rank)];
    Rank& me = ranks_[static_cast<std::size_t>(rank)];
    for (; me.at < operations.size(); ++me.at) {
      const StepOperation& one = operations[me.at];
      switch (one.kind) {
      case Kind::receive:
        if (!receive(rank, me, one.index))
          return;
        break;
      case Kind::compute:
      case Kind::move:
        me.now += one.seconds;
        break;
      case Kind::hide:
        me.hidden = std::max(me.hidden, me.now + one.seconds);
        break;
      case Kind::settle:
        me.now = std::max(me.now, me.hidden);
        break;
      case Kind::send:
        if (!send(rank, me, schedule_.steps(rank)[static_cast<std::size_t>(one.index / 2)][one.index % 2]))
          return;
        break;
      case Kind::join:
        end_of(rank, one.index) = me.now + program_.collectives[static_cast<std::size_t>(one.index)].seconds;
        break;
      case Kind::await:
        me.now = std::max(me.now, end_of(rank, one.index));
        break;
      }
    }
  }
  [[nodiscard]] double& end_of(int rank, int collective) {
    return ends_[static_cast<std::size_t>(rank) * program_.collectives.size() +
                 static_cast<std::size_t>(collective)];
  }

  /// Posts the receives in the window; returns whether the arrival of the step's inputs is known.
  bool receive(int rank, Rank& me, int index) {
    const std::span<const Step> steps = schedule_.steps(rank);
    const StagePlacement& placement = schedule_.placement();
    const int until =
        std::min(index + std::max(schedule_.window().receive_ahead, 0) + 1, static_cast<int>(steps.size()));
    for (; me.posted < until; ++me.posted)
      for (int i = 0; i < steps[static_cast<std::size_t>(me.posted)].size(); ++i)
        if (const auto in = input_of(placement, steps[static_cast<std::size_t>(me.posted)][i]);
            in && in->is_sent()) {
          Message& message = message_of(*in);
          message.posted = me.now;
          if (moves(message))
            wake(in->from_rank); // which may wait for room
        }
    double begin = me.now;
    const Step& step = steps[static_cast<std::size_t>(index)];
    for (int i = 0; i < step.size(); ++i)
      if (const auto in = input_of(placement, step[i]); in && in->is_sent()) {
        const Message& message = message_of(*in);
        if (!moves(message))
          return false;
        begin = std::max(begin, arrival(message));
      }
    me.now = begin;
    return true;
  }

  /// Returns whether it is known when the channel has room.
  bool send(int rank, Rank& me, const Action& action) {
    const StagePlacement& placement = schedule_.placement();
    const StageMessage made = *output_of(placement, action);
    const int channel = (made.gradient ? 2 : 0) +
                        (placement.runs_back(placement.chunk_of(made.stage, made.microbatch)) ? 1 : 0);
    const Message*& before =
        channels_[static_cast<std::size_t>((4 * rank + channel) * slots_ + me.sent[channel] % slots_)];
    if (before != nullptr && !moves(*before))
      return false;
    if (before != nullptr)
      me.now = std::max(me.now, arrival(*before));
    ++me.sent[channel];
    Message& message = message_of(made);
    message.sent = me.now;
    before = &message;
    wake(made.to_rank);
    return true;
  }

  const StepProgram& program_;
  const Schedule& schedule_;
  int slots_;
  std::vector<Rank> ranks_;
  std::vector<double> ends_;             // of collectives, by rank
  std::vector<const Message*> channels_; // the messages in the slots of each channel of each rank
  std::vector<Message> messages_;
  std::vector<int> runnable_;
};

} // namespace detail

/// @brief Seconds of a plan's step as `simulate_step` gives them without contention, in a tenth of its time.
///
/// If there are more than 16 microbatches for each rank, steps of fewer are extended: from a multiple of
/// twice the number of ranks to the next but one, most schedules repeat exactly, others to within 1%. Time:
/// some 0.2 µs for each forward pass, of which there are at most 16 * pp² * chunks.
/// @throws InvalidArgument if the schedule does not allow the plan's numbers.
[[nodiscard]] inline double step_seconds_unshared(const ModelSpec& model, const ClusterSpec& cluster,
                                                  const RunSpec& run, const PlanConfiguration& plan) {
  const Calibration calibration = calibration_of(cluster.chip.generation);
  const std::int64_t each = std::int64_t{plan.dp} * plan.microbatch, all = run.sequences / each;
  const auto seconds_of = [&](std::int64_t microbatches) {
    RunSpec part = run;
    part.sequences = microbatches * each;
    const StepProgram program = step_program(model, cluster, part, plan, calibration, false, true);
    return detail::UnsharedStep(program).seconds();
  };
  const std::int64_t round = 2 * std::int64_t{plan.pp}, few = all % round + 2 * round, more = few + 2 * round;
  if (all <= 8 * round)
    return seconds_of(all);
  const double seconds = seconds_of(few);
  return seconds +
         static_cast<double>(all - few) / static_cast<double>(more - few) * (seconds_of(more) - seconds);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
