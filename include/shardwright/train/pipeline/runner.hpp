// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Executes a schedule on the ranks of a pipeline, with any stages.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/turns.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/device_communicator_for.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/explain.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/train/gradient/background_calls.hpp>
#include <shardwright/train/pipeline/agreement.hpp>
#include <shardwright/train/pipeline/messages.hpp>
#include <shardwright/train/pipeline/plan.hpp>
#include <shardwright/train/pipeline/saved_states.hpp>
#include <shardwright/train/pipeline/stage_contract.hpp>
#include <shardwright/train/pipeline/timeline.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The options of a pipeline runner.
struct PipelineOptions {
  bool record = false; ///< Keep a timeline: two clock reads for each action and wait.
  /// The turns of the stages' mesh (in_turns): the passes of an overlapped step hide each other's
  /// all_to_alls.
  std::shared_ptr<Turns> turns{};
  /// Called after each forward pass of the last stage in a step, on its ranks, with the microbatch and its
  /// summed loss on this rank: 0 on replicas of another rank. Only for losses on a host.
  std::function<void(int microbatch, double loss)> on_loss{};
};

/// @brief Executes a schedule on the ranks of a pipeline, step after step.
///
/// Before a step, its receives and those of the next `receive_ahead` steps are in flight; sends are
/// asynchronous, with at most `sends_in_flight` per channel. The proof of a schedule assumes exactly this.
/// Memory for activations comes from the pool of the stages' mesh and returns with their last pass: nothing
/// is allocated in steady state. A runner belongs to its rank's thread; after a run that threw it must not be
/// used.
template <PipelineStage Stage>
class PipelineRunner : detail::StageHandover<typename Stage::Output::layout, typename Stage::Input::layout> {
  using Boundary = typename Stage::Input;
  using Batch = typename Stage::Batch;
  using Saved = typename Stage::Saved;

  /// Whether a part that needs the whole batch exists or not is known at run time.
  static constexpr bool chosen_at_run_time = [] {
    if constexpr (requires { Stage::may_read_whole_batch; })
      return Stage::may_read_whole_batch;
    else
      return false;
  }();

public:
  using Options = PipelineOptions;
  using Loss = typename Stage::Loss;

  /// @brief Proves the schedule. Collective over `ranks`, the ranks of the pipeline, numbered as in the
  /// schedule; all must pass the same schedule. A loss that needs the whole batch compiles only with a
  /// schedule whose type guarantees that all forward passes come first, or with CountingFirst; for parts that
  /// exist or not at run time, the schedule is checked here, alike on all ranks.
  /// @param chunks this rank's stages by chunk; they must outlive the runner
  /// @throws InvalidArgument if ranks or chunks are not those of the schedule, or its proof does not hold (it
  /// says which dependency is missing, or which ranks wait for one another); ConfigurationMismatch if ranks
  /// pass different schedules.
  template <std::derived_from<Schedule> S>
  PipelineRunner(HostCommunicator ranks, S schedule, std::vector<Stage*> chunks, PipelineOptions options = {})
      : ranks_(std::move(ranks)), schedule_(std::move(schedule)), chunks_(std::move(chunks)),
        plan_(checked_plan()),
        forwards_(detail::PipelinePlan::forward_schedule(schedule_, plan_.microbatches), ranks_.rank()),
        recorder_(options.record, 8 * plan_.steps.size() + 64),
        messages_(plan_, schedule_.window().sends_in_flight, recorder_),
        saved_(plan_.chunks, plan_.microbatches), turns_(std::move(options.turns)),
        on_loss_(std::move(options.on_loss)) {
    static_cast<void>(carries_loss<Loss, S>);
    if constexpr (chosen_at_run_time) {
      if (any_reads_whole_batch())
        detail::require_whole_batch(schedule_);
      if (schedule_.counts_first())
        count_first_ = &PipelineRunner::count;
    } else if constexpr (WholeBatchLoss<Loss>) {
      detail::require_whole_batch(schedule_);
      if constexpr (detail::counts_first<S>)
        count_first_ = &PipelineRunner::count;
    }
  }
  PipelineRunner(const PipelineRunner&) = delete;
  PipelineRunner& operator=(const PipelineRunner&) = delete;

  /// @brief One training step over the schedule's microbatches; returns the sum of this rank's losses, which
  /// is empty if it does not hold the last stage. Collective; cost: the passes, and a message to each stage
  /// that follows on another rank, forward and back, for each microbatch.
  /// @throws InvalidArgument for a different number of microbatches; LifecycleError after a run that threw;
  /// the typed errors of the communicators.
  [[nodiscard]] Loss run(std::span<const Batch> batches, SourceLocation where = SourceLocation::current()) {
    if (count_first_ != nullptr)
      (this->*count_first_)(batches, where);
    begin(batches.size() == static_cast<std::size_t>(plan_.microbatches), batches, where);
    order_messages(0, plan_.microbatches, [this] { return schedule_; });
    Loss loss{};
    carry_out(plan_.steps, batches,
              [&](const auto& actions) { this->carry_out_step(actions, batches, loss); });
    return loss;
  }

  /// @brief Runs only forward passes, of at most the schedule's microbatches, one after the other: with
  /// `at_last(stage, input, batch, saved)` for the last stage and `Stage::evaluate` for the others. On a
  /// device the host then waits for them.
  /// @throws DataError if this rank has met a token id beyond the vocabulary; its loss is on another rank.
  template <class AtLast>
  void run_forwards(std::span<const Batch> batches, AtLast at_last,
                    SourceLocation where = SourceLocation::current()) {
    Loss unused{};
    run_forwards_by([&](Stage& stage, std::optional<Boundary> in, const Batch& batch,
                        Saved& saved) { return stage.evaluate(std::move(in), batch, saved, unused); },
                    batches, at_last, where);
    using Target = typename Boundary::target;
    if constexpr (!Target::host_accessible && requires(Stage & stage) { stage.core(); }) {
      auto& resources = chunks_.front()->core().template resources<Target>();
      detail::wait_for_device<Target>(resources.execution());
      detail::require_known_ids(resources, where);
    }
  }

  /// @brief The summed loss of this rank's last stage without gradients. Collective; waits like run_forwards.
  [[nodiscard]] Loss evaluate(std::span<const Batch> batches,
                              SourceLocation where = SourceLocation::current()) {
    Loss loss{};
    run_forwards(
        batches,
        [&](Stage& last, std::optional<Boundary> in, const Batch& batch, Saved& saved) {
          static_cast<void>(last.evaluate(std::move(in), batch, saved, loss));
        },
        where);
    return loss;
  }

  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  /// @brief The ranks of the pipeline.
  [[nodiscard]] const HostCommunicator& ranks() const noexcept { return ranks_; }
  /// @brief The most microbatches, times chunks, that the last run kept at the same time: what the proof
  /// calls in flight.
  [[nodiscard]] int peak_in_flight() const noexcept { return saved_.peak(); }
  /// @brief Events of the last run, if the options request them.
  [[nodiscard]] const RankTimeline& timeline() const noexcept { return recorder_.events(); }
  /// @brief The same with the reductions and gathers of the stages' mesh since
  /// record_background(mesh, true), as far as they have ended; those of a step have ended after
  /// GradAccumulator::finish.
  template <class Mesh> [[nodiscard]] RankTimeline timeline(const Mesh& mesh) const {
    RankTimeline out = timeline();
    const auto seconds = [&](CallTimes::Clock::time_point at) {
      return std::chrono::duration<double>(at - recorder_.origin()).count();
    };
    for (const auto& call : mesh.core().template part<detail::BackgroundLog>().calls)
      if (call->times.ended())
        out.push_back(
            {call->purpose == detail::Background::gathers ? PipelineWork::gather : PipelineWork::reduction,
             Action{}, seconds(call->times.begun_at()), seconds(call->times.ended_at()),
             static_cast<std::int64_t>(call->bytes)});
    return out;
  }

private:
  using PlannedAction = detail::PlannedAction;

  /// Only forward passes: `forward` for all stages but the last, `at_last` for that one.
  template <class Forward, class AtLast>
  void run_forwards_by(const Forward& forward, std::span<const Batch> batches, const AtLast& at_last,
                       SourceLocation where) {
    begin(batches.size() <= static_cast<std::size_t>(plan_.microbatches), batches, where);
    const auto microbatches = static_cast<int>(batches.size());
    order_messages(1, microbatches, [&] { return plan_.forward_schedule(schedule_, microbatches); });
    carry_out(forwards_.first_steps(microbatches), batches, [&](const auto& actions) {
      const PlannedAction& planned = actions.front();
      std::optional<Boundary> in = messages_.take(planned);
      const Batch& batch = batch_of(planned, batches);
      Saved& saved = saved_.take(planned.chunk, planned.action.microbatch);
      if (planned.action.stage == schedule_.stages() - 1)
        at_last(stage_of(planned), std::move(in), batch, saved);
      else
        messages_.deliver(planned, forward(stage_of(planned), std::move(in), batch, saved));
      saved_.give_back(planned.chunk, planned.action.microbatch);
    });
  }
  /// All forward passes once, so that the stages can count the whole batch.
  void count(std::span<const Batch> batches, SourceLocation where) {
    const auto forward = [](Stage& stage, std::optional<Boundary> in, const Batch& batch, Saved& saved) {
      return stage.count(std::move(in), batch, saved);
    };
    run_forwards_by(forward, batches, forward, where);
    for (Stage* const stage : chunks_)
      stage->end_forwards();
  }

  /// Whether a part of any rank needs the whole batch, so that all ranks accept the schedule, or none.
  /// Collective.
  [[nodiscard]] bool any_reads_whole_batch() {
    std::int32_t reads = 0;
    for (const Stage* const stage : chunks_)
      reads |= stage->reads_whole_batch() ? 1 : 0;
    ranks_.all_reduce_in_place(std::span<std::int32_t>(&reads, 1), ReduceOp::maximum);
    return reads != 0;
  }

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
    detail::require_same_schedule(ranks_, schedule_);
    static_cast<void>(require_proof(schedule_));
    return {schedule_, ranks_.rank(), lowest_stage()};
  }

  /// The first stage to which gradients are sent. This rank's stages know it as far as their messages do.
  [[nodiscard]] int lowest_stage() const {
    int out = 0;
    if constexpr (requires(const Stage& stage) { stage.returns_gradient(); })
      for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
        if (!chunks_[chunk]->returns_gradient())
          out = std::max(out, schedule_.placement().stage_of(ranks_.rank(), static_cast<int>(chunk)) +
                                  (chunks_[chunk]->takes_gradient() ? 0 : 1));
    return out;
  }

  /// Number of later steps whose receives are started in advance.
  [[nodiscard]] std::size_t ahead() const {
    return static_cast<std::size_t>(std::max(schedule_.window().receive_ahead, 0));
  }
  [[nodiscard]] static std::span<const PlannedAction> actions_of(const detail::PlannedStep& step) {
    return {step.actions.data(), static_cast<std::size_t>(step.count)};
  }
  [[nodiscard]] Stage& stage_of(const PlannedAction& planned) const {
    return *chunks_[static_cast<std::size_t>(planned.chunk)];
  }
  [[nodiscard]] static const Batch& batch_of(const PlannedAction& planned, std::span<const Batch> batches) {
    return batches[static_cast<std::size_t>(planned.action.microbatch)];
  }

  void begin(bool fits, std::span<const Batch> batches, SourceLocation where) {
    if (!fits)
      throw InvalidArgument("PipelineRunner: the microbatches must be the schedule's " +
                            std::to_string(plan_.microbatches) + ", but " + std::to_string(batches.size()) +
                            " were given (make a schedule for their number)");
    if (running_)
      detail::reject_use(
          "PipelineRunner: a runner must not be used after a run that threw (end the program, or launch a new world)");
    running_ = true;
    if (!messages_.connected() && !batches.empty())
      messages_.connect(detail::device_communicator_for<typename Boundary::target>(
          chunks_.front()->make_input(batches.front()).core(), ranks_));
    messages_.called_from(where);
    saved_.reset_peak();
    recorder_.restart(ranks_);
  }

  /// Sets the order of a run's messages where they match by order, and keeps it for the next run of its kind.
  template <class MakeSchedule> void order_messages(std::size_t kind, int microbatches, MakeSchedule make) {
    if (!messages_.takes_turns() || microbatches == 0)
      return;
    auto& [known, turns] = message_turns_[kind];
    if (known != microbatches)
      turns = MessageTurns(make(), ranks_.rank(), plan_.lowest);
    known = microbatches;
    messages_.take_turns(turns);
  }

  /// Does `step` for each of the steps, with the receives of the next ones under way; then the run is over.
  template <class DoStep>
  void carry_out(std::span<const detail::PlannedStep> steps, std::span<const Batch> batches,
                 const DoStep& step) {
    std::size_t posted = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (; posted < steps.size() && posted <= i + ahead(); ++posted)
        for (const PlannedAction& planned : actions_of(steps[posted]))
          messages_.post(planned, [&] { return stage_of(planned).make_input(batch_of(planned, batches)); });
      step(actions_of(steps[i]));
    }
    messages_.finish(plan_.steps.empty() ? Action{} : plan_.steps.back().actions.front().action);
    running_ = false;
  }

  /// All inputs of a step, then its work, then all its outputs.
  void carry_out_step(std::span<const PlannedAction> actions, std::span<const Batch> batches, Loss& loss) {
    std::array<std::optional<Boundary>, 2> handed;
    for (std::size_t i = 0; i < actions.size(); ++i)
      handed[i] = messages_.take(actions[i]);
    // Overlapped passes are counted together, as in the proof.
    for (const PlannedAction& planned : actions)
      if (planned.action.pass == Pass::forward)
        saved_.take(planned.chunk, planned.action.microbatch);
    const auto work = [&](std::size_t i) {
      handed[i] = perform(actions[i], std::move(handed[i]), batch_of(actions[i], batches), loss);
    };
    if (actions.size() == 2 && turns_) {
      turns_->run([&] { work(0); }, [&] { work(1); });
    } else {
      for (std::size_t i = 0; i < actions.size(); ++i)
        work(i);
    }
    for (const PlannedAction& planned : actions)
      if constexpr (WholeBatchLoss<Loss> || chosen_at_run_time)
        if (planned.ends_forwards && count_first_ == nullptr)
          stage_of(planned).end_forwards();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (makes_weight_gradient(actions[i].action.pass))
        saved_.give_back(actions[i].chunk, actions[i].action.microbatch);
      messages_.deliver(actions[i], std::move(handed[i]));
    }
  }

  [[nodiscard]] std::optional<Boundary> forward(Stage& stage, const PlannedAction& planned,
                                                std::optional<Boundary> in, const Batch& batch, Loss& loss) {
    Saved& saved = saved_.at(planned.chunk, planned.action.microbatch);
    if constexpr (requires { stage.core(), loss.loss.value; })
      if (on_loss_ && planned.action.stage == schedule_.stages() - 1) {
        Loss own{};
        auto out = stage.forward(std::move(in), batch, saved, own);
        loss += own;
        on_loss_(planned.action.microbatch,
                 detail::counts_once<typename Loss::layout>(stage.core()) ? own.loss.value : 0.0);
        return out;
      }
    return stage.forward(std::move(in), batch, saved, loss);
  }
  [[nodiscard]] std::optional<Boundary> perform(const PlannedAction& planned, std::optional<Boundary> in,
                                                const Batch& batch, Loss& loss) {
    const auto span = recorder_.span(PipelineWork::compute, planned.action);
    Stage& stage = stage_of(planned);
    if constexpr (requires { stage.expect_pass(planned.next_of_chunk); })
      stage.expect_pass(planned.next_of_chunk);
    Saved& saved = saved_.at(planned.chunk, planned.action.microbatch);
    switch (planned.action.pass) {
    case Pass::forward:
      return forward(stage, planned, std::move(in), batch, loss);
    case Pass::backward:
      return stage.backward(std::move(in), batch, saved, planned.position);
    case Pass::input_gradient:
      return stage.input_gradient(std::move(in), saved);
    case Pass::weight_gradient:
      stage.weight_gradient(batch, saved, planned.position);
    }
    return std::nullopt;
  }

  HostCommunicator ranks_;
  Schedule schedule_;
  std::vector<Stage*> chunks_;
  detail::PipelinePlan plan_, forwards_; ///< Of a step, and of its forward passes only.
  detail::TimelineRecorder recorder_;
  detail::PipelineMessages<Boundary> messages_;
  std::array<std::pair<int, MessageTurns>, 2> message_turns_{}; ///< Of steps and of forwards only.
  detail::SavedStates<Saved> saved_;
  std::shared_ptr<Turns> turns_;
  std::function<void(int, double)> on_loss_;
  bool running_ = false;
  void (PipelineRunner::*count_first_)(std::span<const Batch>, SourceLocation) = nullptr;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
