// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Carries out a schedule on the ranks of a pipeline, over any stages.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/train/pipeline_agreement.hpp>
#include <shardwright/train/pipeline_plan.hpp>
#include <shardwright/train/pipeline_stage.hpp>
#include <shardwright/train/pipeline_timeline.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief How a runner issues messages, and whether it keeps a timeline.
struct PipelineOptions {
  int receive_ahead = 2;   ///< Steps whose receives are started before they are reached.
  int sends_in_flight = 2; ///< Unfinished sends to one rank in one direction.
  bool record = false;     ///< Keep a timeline: two readings of a clock for each action.
};

/// @brief The ranks of a pipeline carrying out one schedule, step after step.
///
/// Before a step the receives of it and of the next `receive_ahead` steps are under way; sends are
/// asynchronous, and each channel has `sends_in_flight` of them. That is what the proof of a schedule
/// assumes. Memory of activations comes from the pool of the stages' mesh and goes back with their last pass:
/// a steady state allocates nothing. A runner belongs to its rank's thread; after a run that threw it is of
/// no use.
template <PipelineStage Stage>
class PipelineRunner : detail::StageHandover<typename Stage::Output::layout, typename Stage::Input::layout> {
  using Boundary = typename Stage::Input;
  using Element = typename Boundary::value_type;
  using Batch = typename Stage::Batch;
  using Saved = typename Stage::Saved;
  using Clock = std::chrono::steady_clock;

public:
  using Loss = typename Stage::Loss;

  /// @brief Collective over `ranks`, the ranks of the pipeline, numbered as in the schedule: all give one
  /// schedule.
  /// @param chunks this rank's stages by chunk; they must outlive the runner
  /// @throws InvalidArgument where ranks or chunks are not those of the schedule; ConfigurationMismatch where
  /// ranks give different schedules.
  PipelineRunner(HostCommunicator ranks, Schedule schedule, std::vector<Stage*> chunks,
                 PipelineOptions options = {})
      : ranks_(std::move(ranks)), schedule_(std::move(schedule)), options_(options),
        chunks_(std::move(chunks)), plan_(checked_plan()), inputs_(plan_.slots), channels_(plan_.channels),
        saved_(chunks_.size()), free_(chunks_.size()), saved_of_(plan_.slots / 2) {
    for (Channel& channel : channels_)
      channel.sends.resize(static_cast<std::size_t>(options_.sends_in_flight));
    if (options_.record)
      timeline_.reserve(8 * plan_.steps.size() + 2 * channels_.size() * channels_.size() + 8);
  }
  PipelineRunner(const PipelineRunner&) = delete;
  PipelineRunner& operator=(const PipelineRunner&) = delete;

  /// @brief One step of training over the schedule's microbatches; the sum of this rank's losses, which is
  /// nothing where it does not hold the last stage. Collective.
  /// @throws InvalidArgument for another number of microbatches; LifecycleError after a run that threw; the
  /// typed errors of the communicators.
  [[nodiscard]] Loss run(std::span<const Batch> batches) {
    begin(batches.size() == static_cast<std::size_t>(plan_.microbatches), batches.size());
    Loss loss{};
    std::size_t posted = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const std::size_t reach = i + static_cast<std::size_t>(options_.receive_ahead);
      for (; posted < plan_.steps.size() && posted <= reach; ++posted)
        for (const PlannedAction& action : actions_of(plan_.steps[posted]))
          post(action, batches);
      carry_out(actions_of(plan_.steps[i]), batches, loss);
    }
    end();
    return loss;
  }

  /// @brief The forwards alone, of at most the schedule's microbatches, one after the other: `at_last(stage,
  /// input, batch, saved)` runs in place of the last stage's, and `Stage::evaluate` in place of the others'.
  template <class AtLast>
  void run_forwards(std::span<const Batch> batches, AtLast at_last) {
    begin(batches.size() <= static_cast<std::size_t>(plan_.microbatches), batches.size());
    Loss unused{};
    for (const PlannedAction& planned : plan_.forwards) {
      if (static_cast<std::size_t>(planned.action.microbatch) >= batches.size())
        break;
      post(planned, batches);
      std::optional<Boundary> in = take_input(planned);
      const Batch& batch = batches[static_cast<std::size_t>(planned.action.microbatch)];
      const std::size_t saved = take_saved(planned);
      if (planned.action.stage == schedule_.stages() - 1)
        at_last(*stage(planned), std::move(in), batch, saved_at(planned, saved));
      else
        deliver(planned, stage(planned)->evaluate(std::move(in), batch, saved_at(planned, saved), unused));
      give_back_saved(planned);
    }
    end();
  }

  /// @brief The summed loss of this rank's last stage without gradients. Collective.
  [[nodiscard]] Loss evaluate(std::span<const Batch> batches) {
    Loss loss{};
    run_forwards(batches, [&](Stage& last, std::optional<Boundary> in, const Batch& batch, Saved& saved) {
      static_cast<void>(last.evaluate(std::move(in), batch, saved, loss));
    });
    return loss;
  }

  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const HostCommunicator& ranks() const noexcept { return ranks_; }
  /// @brief Most microbatches, times chunks, that the last run kept at a time: what the proof calls in
  /// flight.
  [[nodiscard]] int peak_in_flight() const noexcept { return peak_; }
  /// @brief Events of the last run, where the options ask for them.
  [[nodiscard]] const RankTimeline& timeline() const noexcept { return timeline_; }

private:
  using PlannedAction = detail::PlannedAction;
  using Kind = detail::PipelineMessage::Kind;

  /// What an action waits for. The memory outlives the receive into it.
  struct Input {
    std::optional<Boundary> tensor;
    Pending receive;
  };
  struct Outgoing {
    std::optional<Boundary> tensor;
    Pending send;
  };
  /// Unfinished sends to one rank in one direction, oldest first from `oldest`.
  struct Channel {
    std::vector<Outgoing> sends;
    std::size_t oldest = 0;
    std::size_t count = 0;
  };

  [[nodiscard]] detail::PipelinePlan checked_plan() {
    const auto fail = [](const std::string& sentence) {
      throw InvalidArgument("PipelineRunner: " + sentence);
    };
    if (ranks_.size() != schedule_.ranks())
      fail("the schedule must have as many ranks as the pipeline, but it has " +
           std::to_string(schedule_.ranks()) + " and the pipeline " + std::to_string(ranks_.size()) +
           " (make the schedule for the mesh)");
    if (static_cast<int>(chunks_.size()) != schedule_.placement().chunks)
      fail("a rank must hold as many stages as the placement has chunks, " +
           std::to_string(schedule_.placement().chunks) + ", but " + std::to_string(chunks_.size()) +
           " were given (make them from the schedule's placement)");
    if (options_.receive_ahead < 0 || options_.sends_in_flight < 1)
      fail("receive_ahead must be at least 0 and sends_in_flight at least 1, but they are " +
           std::to_string(options_.receive_ahead) + " and " + std::to_string(options_.sends_in_flight) +
           " (take 2 and 2)");
    detail::require_one_schedule(ranks_, schedule_, {options_.receive_ahead, options_.sends_in_flight});
    return {schedule_, ranks_.rank()};
  }

  [[nodiscard]] static std::span<const PlannedAction> actions_of(const detail::PlannedStep& step) {
    return {step.actions.data(), static_cast<std::size_t>(step.count)};
  }
  [[nodiscard]] Stage* stage(const PlannedAction& planned) const {
    return chunks_[static_cast<std::size_t>(planned.chunk)];
  }

  void begin(bool fits, std::size_t given) {
    if (!fits)
      throw InvalidArgument("PipelineRunner: the microbatches must be the schedule's " +
                            std::to_string(plan_.microbatches) + ", but " + std::to_string(given) +
                            " were given (make a schedule for their number)");
    if (running_)
      throw LifecycleError(
          "PipelineRunner: a runner must not be used after a run that threw (end the program, "
          "or launch a new world)");
    running_ = true;
    peak_ = 0;
    if (!options_.record)
      return;
    timeline_.clear();
    ranks_.barrier();
    origin_ = Clock::now();
  }

  void end() {
    for (Channel& channel : channels_)
      while (channel.count > 0)
        wait_for_oldest(channel, {});
    running_ = false;
  }

  /// Starts the receive of an action's input, if it comes from another rank.
  void post(const PlannedAction& planned, std::span<const Batch> batches) {
    if (planned.input.kind != Kind::remote)
      return;
    Input& input = inputs_[planned.input.slot];
    input.tensor.emplace(
        stage(planned)->make_input(batches[static_cast<std::size_t>(planned.action.microbatch)]));
    detail::wait_for_kernels(input.tensor->execution());
    input.receive =
        ranks_.receive_async(std::span<Element>(input.tensor->mutable_data(), input.tensor->local_size()),
                             planned.input.peer, planned.input.tag);
  }

  [[nodiscard]] std::optional<Boundary> take_input(const PlannedAction& planned) {
    if (planned.input.kind == Kind::none)
      return std::nullopt;
    Input& input = inputs_[planned.input.slot];
    if (planned.input.kind == Kind::remote)
      wait(input.receive, PipelineWork::wait_input, planned.action);
    return std::exchange(input.tensor, std::nullopt);
  }

  /// A step: all its inputs, then its work, then all its outputs.
  void carry_out(std::span<const PlannedAction> actions, std::span<const Batch> batches, Loss& loss) {
    std::array<std::optional<Boundary>, 2> in;
    std::array<std::optional<Boundary>, 2> out;
    std::array<std::size_t, 2> saved{};
    for (std::size_t i = 0; i < actions.size(); ++i)
      in[i] = take_input(actions[i]);
    for (std::size_t i = 0; i < actions.size(); ++i)
      saved[i] = actions[i].action.pass == Pass::forward ? take_saved(actions[i]) : saved_of(actions[i]);
    for (std::size_t i = 0; i < actions.size(); ++i)
      out[i] = perform(actions[i], std::move(in[i]),
                       batches[static_cast<std::size_t>(actions[i].action.microbatch)],
                       saved_at(actions[i], saved[i]), loss);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (makes_weight_gradient(actions[i].action.pass))
        give_back_saved(actions[i]);
      deliver(actions[i], std::move(out[i]));
      if (actions[i].ends_gradients)
        stage(actions[i])->end_gradients();
    }
  }

  [[nodiscard]] std::optional<Boundary> perform(const PlannedAction& planned, std::optional<Boundary> in,
                                                const Batch& batch, Saved& saved, Loss& loss) {
    const Span span(*this, PipelineWork::compute, planned.action);
    Stage& with = *stage(planned);
    switch (planned.action.pass) {
    case Pass::forward:
      return with.forward(std::move(in), batch, saved, loss);
    case Pass::backward:
      return with.backward(std::move(in), batch, saved);
    case Pass::input_gradient:
      return with.input_gradient(std::move(in), saved);
    case Pass::weight_gradient:
      with.weight_gradient(batch, saved);
    }
    return std::nullopt;
  }

  void deliver(const PlannedAction& planned, std::optional<Boundary> out) {
    if (planned.output.kind == Kind::none)
      return;
    if (planned.output.kind == Kind::local) {
      inputs_[planned.output.slot].tensor = std::move(out);
      return;
    }
    Channel& channel = channels_[planned.output.channel];
    if (channel.count == channel.sends.size())
      wait_for_oldest(channel, planned.action);
    Outgoing& outgoing = channel.sends[(channel.oldest + channel.count++) % channel.sends.size()];
    outgoing.tensor = std::move(out);
    detail::wait_for_kernels(outgoing.tensor->execution());
    outgoing.send =
        ranks_.send_async(std::span<const Element>(outgoing.tensor->data(), outgoing.tensor->local_size()),
                          planned.output.peer, planned.output.tag);
  }

  void wait_for_oldest(Channel& channel, const Action& action) {
    Outgoing& outgoing = channel.sends[channel.oldest];
    wait(outgoing.send, PipelineWork::wait_send, action);
    outgoing.tensor.reset();
    channel.oldest = (channel.oldest + 1) % channel.sends.size();
    --channel.count;
  }

  // The state of microbatches in flight: as many as there were at a time, taken again and again.

  [[nodiscard]] std::size_t take_saved(const PlannedAction& planned) {
    auto& all = saved_[static_cast<std::size_t>(planned.chunk)];
    auto& free = free_[static_cast<std::size_t>(planned.chunk)];
    if (free.empty()) {
      free.reserve(all.size() + 1);
      free.push_back(all.size());
      all.emplace_back();
    }
    const std::size_t index = free.back();
    free.pop_back();
    saved_of_[plan_.place(planned.chunk, planned.action.microbatch)] = index;
    peak_ = std::max(peak_, ++in_flight_);
    return index;
  }
  [[nodiscard]] std::size_t saved_of(const PlannedAction& planned) const {
    return saved_of_[plan_.place(planned.chunk, planned.action.microbatch)];
  }
  [[nodiscard]] Saved& saved_at(const PlannedAction& planned, std::size_t index) {
    return saved_[static_cast<std::size_t>(planned.chunk)][index];
  }
  void give_back_saved(const PlannedAction& planned) {
    free_[static_cast<std::size_t>(planned.chunk)].push_back(saved_of(planned));
    --in_flight_;
  }

  /// Notes the time of a scope, where a timeline is kept.
  class Span {
  public:
    Span(PipelineRunner& runner, PipelineWork work, const Action& action)
        : runner_(runner), event_{work, action, runner.now(), 0} {}
    ~Span() {
      if (!runner_.options_.record)
        return;
      event_.end_seconds = runner_.now();
      runner_.timeline_.push_back(event_);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

  private:
    PipelineRunner& runner_;
    PipelineEvent event_;
  };

  [[nodiscard]] double now() const {
    return options_.record ? std::chrono::duration<double>(Clock::now() - origin_).count() : 0;
  }

  void wait(Pending& pending, PipelineWork work, const Action& action) {
    if (!options_.record || pending.ready())
      return pending.wait();
    const Span span(*this, work, action);
    pending.wait();
  }

  HostCommunicator ranks_;
  Schedule schedule_;
  PipelineOptions options_;
  std::vector<Stage*> chunks_;
  detail::PipelinePlan plan_;
  std::vector<Input> inputs_;
  std::vector<Channel> channels_;
  std::vector<std::deque<Saved>> saved_;       // by chunk
  std::vector<std::vector<std::size_t>> free_; // by chunk
  std::vector<std::size_t> saved_of_;          // by chunk and microbatch
  int in_flight_ = 0;
  int peak_ = 0;
  bool running_ = false;
  Clock::time_point origin_{};
  RankTimeline timeline_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
