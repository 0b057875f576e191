// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training loop's step: gradients, guard, optimizer and report, on hosts and on devices.

#include <shardwright/comm/turns.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/optimizer_for.hpp>
#include <shardwright/train/step/dynamic_loss_scale.hpp>
#include <shardwright/train/step/global_sum.hpp>
#include <shardwright/train/step/graph.hpp>
#include <shardwright/train/step/guard.hpp>
#include <shardwright/train/step/progress.hpp>
#include <shardwright/train/step/report.hpp>
#include <shardwright/train/step/reports.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The options of training steps.
struct TrainingOptions {
  NonFinite non_finite = NonFinite::stop;    ///< How to treat steps whose loss or gradients are not finite.
  EmptyBatch empty_batch = EmptyBatch::skip; ///< How to treat steps without a token that counts.
  std::int64_t most_skipped = 10; ///< Skipped steps in a row after which the run stops anyway; 0: never.
  std::optional<LossScaleOptions> loss_scale{}; ///< Scales the loss dynamically: for float16.
  bool record = false;                          ///< Keep timelines of pipelines and of reductions.
  /// Compare what ranks must have in common in the first step: data (see require_equal_inputs()), numbers of
  /// operations, the learning rate, and the copies of weights, gradients (on a host) and optimizer state.
  bool check_inputs = true;
  bool capture = false;           ///< Capture steps on a device, and replay them, if possible.
  std::shared_ptr<Turns> turns{}; ///< Of the mesh, if it was created with in_turns: see PipelineOptions.
  std::function<void(int microbatch, double loss)> on_loss{}; ///< Of a pipeline: see PipelineOptions.
  /// Called on each rank when the gradients of a step are reduced, before the optimizer; on a host.
  std::function<void(const GradientSummary&)> on_gradients{};
};

namespace detail {

/// A model in stages, with a type that runs its microbatches; another one runs them itself.
template <class Model>
concept Pipelined = requires {
  typename Model::Runner;
};
template <class Model> struct RunnerOf { using type = Model&; };
template <Pipelined Model> struct RunnerOf<Model> { using type = typename Model::Runner; };

struct MakeRunner {};

/// The steps of a device whose reports are pending.
template <class Target> struct StepsUnderWay {
  struct Step {
    std::int64_t number;
    double learning_rate;
  };

  template <class Mesh>
  StepsUnderWay(const Mesh& mesh, const HostCommunicator& world, const TrainingOptions& options)
      : reports(world.deadline()),
        graph(CaptureOf<Target>(mesh.core().template resources<Target>()), obstacle(world, options)) {}

  /// Why steps are not captured.
  [[nodiscard]] static std::string obstacle(const HostCommunicator& world, const TrainingOptions& options) {
    if (!options.capture)
      return "not asked for";
    if (world.size() > 1)
      return "collectives between ranks need the host, so that threads meet and NCCL is watched, which a graph cannot do (run one rank)";
    return {};
  }

  StepReports<Target> reports;
  StepGraph<CaptureOf<Target>> graph;
  std::deque<Step> steps;
  std::optional<DeviceSummary<Target>> summary;
  std::string note;  // to go with the next report
  bool told = false; // whether the run has reported the outcome of the capture
};

} // namespace detail

/// @brief A model's training, step by step.
///
/// On a host, `step` returns when the step is done. On a device it returns when the step is enqueued, with
/// the report of the previous one; `settle` waits for the rest. A non-finite step is repeated under watch, so
/// that the rank at fault is named, and then skipped or, depending on the options, ends the run. All ranks
/// decide alike. A step or an evaluation that throws is the last one: other ranks may be at a different point
/// in it.
/// @tparam Model SingleStageModel or PipelineModel
/// @tparam Optimizer an OptimizerFor the model
template <class Model, class Optimizer = AdamW> class Training {
  using Target = typename Model::target;
  using Batch = typename Model::Batch;
  static constexpr bool on_host = Target::host_accessible;
  static_assert(sizeof(detail::RequiredOptimizer<Optimizer, Model>) > 0);
  using Runner = typename detail::RunnerOf<Model>::type;
  using Batches = std::span<const Batch>;

public:
  /// @brief Trains a model in one piece. @param mesh that of the model; all its ranks take part
  template <class Mesh>
  requires(!detail::Pipelined<Model>)
      Training(const Mesh& mesh, Model& model, Optimizer optimizer = Optimizer(),
               const TrainingOptions& options = {})
      : Training(mesh, model, mesh.world(), std::move(optimizer), options, detail::MakeRunner{}, model) {}

  /// @brief Trains the stages that this rank holds.
  /// @param world all ranks that hold a part of the model
  /// @param pipeline the ranks of the pipeline, numbered as in the schedule
  /// @param schedule a Schedule, which is proven here
  template <class Mesh, class AnySchedule>
  requires(detail::Pipelined<Model>)
      Training(const Mesh& mesh, Model& model, const HostCommunicator& world,
               const HostCommunicator& pipeline, AnySchedule schedule, Optimizer optimizer = Optimizer(),
               const TrainingOptions& options = {})
      : Training(mesh, model, world, std::move(optimizer), options, detail::MakeRunner{}, pipeline,
                 std::move(schedule), model.chunks(),
                 typename Runner::Options{
                     .record = options.record, .turns = options.turns, .on_loss = options.on_loss}) {}

  /// @brief Executes the next step.
  ///
  /// Collective; cost: the passes of its microbatches, and GradAccumulator::finish(). On a device whose steps
  /// are captured, batches must be at the same address in every step.
  /// @param make_batches called with the index of a step, from 0: returns its microbatches, a span or a
  /// container that is kept until they have run. On a device it is called again for a step that ends the run;
  /// a host repeats a step with the same batches. If it throws, the step has not begun.
  /// @return the report that is available by then: on a host that of this step, on a device that of the
  /// previous one
  /// @throws NonFiniteStep on every rank if the run must end, DataError if that is for a batch without
  /// tokens; LifecycleError after a step or an evaluation that threw.
  template <class MakeBatches>
  [[nodiscard]] std::optional<StepReport> step(MakeBatches&& make_batches, double learning_rate,
                                               SourceLocation where = SourceLocation::current()) {
    require_unbroken();
    auto&& made = make_batches(steps_);
    const Batches batches(made);
    const std::int64_t number = steps_++;
    return run_or_break([&]() -> std::optional<StepReport> {
      if (options_.check_inputs && number == first_step_) {
        detail::agree_on_optimizer(model_, optimizer_, world_, learning_rate, where);
        shardwright::require_equal_replicas(model_, optimizer_, world_, number);
      }
      if (number < first_step_ + 2)
        model_.for_each_stage(
            [&](auto& stage) { stage.check_inputs(options_.check_inputs && number == first_step_); });
      if constexpr (on_host)
        return host_step(number, batches, learning_rate);
      else
        return device_step(number, batches, make_batches, learning_rate);
    });
  }
  /// @brief The next pending report of a device's step; empty if there is none.
  /// @param make_batches as for step
  template <class MakeBatches> [[nodiscard]] std::optional<StepReport> settle(MakeBatches&& make_batches) {
    if constexpr (!on_host)
      if (device_->reports.pending() > 0)
        return run_or_break([&] { return take_report(make_batches); });
    return std::nullopt;
  }

  /// @brief The summed loss of this rank's batches, without gradients. Collective. A pipeline on a device
  /// waits for it.
  /// @throws LifecycleError after a step or an evaluation that threw; DataError if this rank has met a token
  /// id beyond the vocabulary: on a device without a pipeline when the loss is read.
  [[nodiscard]] auto evaluate(Batches batches,
                              [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    require_unbroken();
    return run_or_break([&] {
      if constexpr (detail::Pipelined<Model>)
        return runner_.evaluate(batches, where);
      else
        return runner_.evaluate(batches);
    });
  }
  /// @brief The mean loss per token of all ranks. Collective; cost: one all_reduce of two numbers.
  /// @throws DataError as evaluate().
  template <class Loss> [[nodiscard]] MeanLoss mean(const Loss& sums) const {
    const auto total = sums.read();
    return detail::mean_over(*core_, total.loss, total.tokens, world_);
  }
  /// @brief Throws on every rank unless all copies of weights and optimizer state are equal.
  /// @throws ReplicaMismatch naming parameters and ranks.
  void require_equal_replicas() { shardwright::require_equal_replicas(model_, optimizer_, world_, steps_); }

  /// @brief The runner of the microbatches: the model itself, or a PipelineRunner if that is in stages.
  [[nodiscard]] Runner& runner() noexcept { return runner_; }
  [[nodiscard]] GradAccumulator<Model>& accumulator() noexcept { return accumulator_; }
  [[nodiscard]] Optimizer& optimizer() noexcept { return optimizer_; }
  [[nodiscard]] Model& model() noexcept { return model_; }
  /// @brief Steps begun so far.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  /// @brief The position in the run; waits for a device.
  [[nodiscard]] TrainingProgress progress() const {
    TrainingProgress out{steps_, optimizer_.steps(resources()), guard_.in_a_row(), {}, {}};
    if (loss_scale_)
      out.loss_scale = loss_scale_->state();
    if constexpr (requires { optimizer_.factors(); })
      out.factors = optimizer_.factors();
    return out;
  }
  /// @brief Resumes from such a position; before the first step. The caller fills weights and states. If
  /// either this training or the position has no dynamic loss scale, this training's setting is kept.
  /// @throws InvalidArgument if it changed the factor of a group that this training's optimizer does not
  /// have.
  void resume(const TrainingProgress& progress) {
    if constexpr (requires { optimizer_.factors(); })
      for (const auto& [group, factor] : progress.factors)
        optimizer_.set_factor(group, factor);
    first_step_ = steps_ = progress.steps;
    optimizer_.set_steps(resources(), progress.optimizer_steps);
    guard_.set_in_a_row(progress.skipped_in_a_row);
    if (loss_scale_ && progress.loss_scale)
      loss_scale_->set_state(*progress.loss_scale);
  }

private:
  template <class Mesh, class... RunnerArguments>
  Training(const Mesh& mesh, Model& model, const HostCommunicator& world, Optimizer optimizer,
           const TrainingOptions& options, detail::MakeRunner, RunnerArguments&&... runner)
      : core_(&mesh.core()), model_(model), world_(world), options_(options),
        runner_(std::forward<RunnerArguments>(runner)...), accumulator_(model, world),
        guard_(options.loss_scale ? NonFinite::skip : options.non_finite, world, options.most_skipped,
               options.empty_batch),
        optimizer_(std::move(optimizer)) {
    if constexpr (!on_host)
      device_.emplace(mesh, world, options);
    if (options.loss_scale)
      model.set_loss_scale(loss_scale_.emplace(mesh, *options.loss_scale).scale());
  }

  [[nodiscard]] detail::TargetResources<Target>& resources() const {
    return core_->template resources<Target>();
  }
  /// Does work that must not stop half-way.
  template <class Work> [[nodiscard]] auto run_or_break(const Work& work) {
    broken_ = true;
    auto out = work();
    broken_ = false;
    return out;
  }
  /// The remaining gradients of a step that threw cannot be dropped without the other ranks, whose reductions
  /// may be at a different point: the next collective would combine unrelated data.
  void require_unbroken() const {
    if (broken_)
      detail::reject_use(
          "Training: a step or an evaluation must not follow one that threw, as ranks may be at different points in it (end the program, or rebuild model and Training from a checkpoint)");
  }

  /// Forward and backward passes of the batches, and the reductions.
  [[nodiscard]] auto gradients(Batches batches) {
    if (options_.record)
      detail::record_background(*core_, true);
    accumulator_.add(runner_.run(batches));
    return accumulator_.finish();
  }
  /// For parts that count per step, such as the load of experts.
  void end_step(const StepVerdict& verdict) {
    model_.for_each_stage([&](auto& stage) { stage.end_step(verdict); });
  }

  [[nodiscard]] StepReport host_step(std::int64_t number, Batches batches, double learning_rate) {
    StepReport report;
    std::optional<CompareRawGradients<Model>> copies;
    if (options_.check_inputs && !compared_)
      copies.emplace(accumulator_);
    GradientSummary summary = gradients(batches);
    if (copies && summary.finite()) { // on all ranks or on none
      copies->require_equal(world_);
      compared_ = true;
    }
    if (loss_scale_)
      loss_scale_->update(summary);
    if (summary.overflowed) {
      report.skipped = true;
      report.note =
          "gradients overflowed, the loss scale is now 2^" + std::to_string(loss_scale_->state().exponent);
    } else {
      std::optional<WatchRawGradients<Model>> watch;
      if (!summary.finite() && summary.tokens > 0) {
        // Repeats the step, and checks each rank's own gradients before they are summed, to name the rank.
        accumulator_.restart();
        end_step({.taken = false}); // the repetition counts again
        watch.emplace(accumulator_);
        summary = gradients(batches);
        if (summary.finite())
          report.note = "not finite at first, but finite when repeated (look for a faulty machine)";
      }
      if (options_.on_gradients)
        options_.on_gradients(summary);
      report.skipped = !guard_.admit(accumulator_, summary, number + 1);
      if (report.skipped)
        report.note = guard_.sentence();
      else
        optimizer_.step(model_, summary, learning_rate);
    }
    end_step({.taken = !report.skipped});
    accumulator_.restart();
    return filled(std::move(report), number, summary, learning_rate);
  }
  [[nodiscard]] static StepReport filled(StepReport report, std::int64_t number,
                                         const GradientSummary& summary, double learning_rate) {
    report.step = number + 1;
    report.loss = summary.loss.value;
    report.gradient_norm = summary.gradient_norm;
    report.learning_rate = learning_rate;
    report.tokens = summary.tokens;
    return report;
  }

  /// Enqueues the step. The host stays one step ahead of the device, unless the next step would discard this
  /// one's timeline.
  template <class MakeBatches>
  [[nodiscard]] std::optional<StepReport> device_step(std::int64_t number, Batches batches,
                                                      MakeBatches& make_batches, double learning_rate) {
    optimizer_.template set_learning_rate<Target>(core_->template resources<Target>(), learning_rate);
    // Every replay writes the memory of a captured step: nothing else may use it in between.
    const detail::PrivateBlocks blocks(core_->template resources<Target>(),
                                       device_->graph.obstacle().empty());
    const StepMode mode = device_->graph.step([&] {
      device_->summary.emplace(gradients(batches));
      if (loss_scale_)
        loss_scale_->update(*device_->summary);
      static_cast<void>(guard_.admit(accumulator_, *device_->summary, number + 1));
      optimizer_.step(model_, *device_->summary);
      end_step({.device_take = &device_->summary->record()->take});
      accumulator_.restart();
    });
    device_->reports.append(*device_->summary);
    device_->steps.push_back({number, learning_rate});
    std::optional<StepReport> before;
    if (device_->reports.pending() > (options_.record ? 0u : 1u))
      before.emplace(take_report(make_batches));
    if (mode == StepMode::captured)
      device_->note = "captured as a graph, which later steps replay";
    else if (options_.capture && !device_->told && !device_->graph.obstacle().empty())
      device_->note = "not captured: " + device_->graph.obstacle();
    device_->told = device_->told || !device_->note.empty();
    return before;
  }

  template <class MakeBatches> [[nodiscard]] StepReport take_report(MakeBatches& make_batches) {
    const GradientSummary summary = device_->reports.take();
    const auto step = device_->steps.front();
    device_->steps.pop_front();
    if (summary.halted)
      end_run(step.number, summary, make_batches);
    StepReport report;
    report.note = std::exchange(device_->note, {});
    report.skipped = !summary.take;
    if (report.skipped)
      report.note += (report.note.empty() ? "" : "; ") +
                     std::string(summary.tokens == 0 ? "no token counted, as all targets are masked"
                                                     : "loss or gradients were not finite");
    return filled(std::move(report), step.number, summary, step.learning_rate);
  }
  /// Repeats the step that ended the run, which has changed nothing, and checks each rank's own gradients.
  template <class MakeBatches>
  [[noreturn]] void end_run(std::int64_t number, const GradientSummary& summary, MakeBatches& make_batches) {
    while (device_->reports.pending() > 0)
      static_cast<void>(device_->reports.take());
    accumulator_.restart();
    const WatchRawGradients<Model> watch(accumulator_);
    auto&& made = make_batches(number);
    static_cast<void>(gradients(Batches(made)).read());
    guard_.end_run(accumulator_, summary, number + 1);
  }

  detail::MeshCore* core_;
  Model& model_;
  HostCommunicator world_;
  TrainingOptions options_;
  Runner runner_;
  GradAccumulator<Model> accumulator_;
  StepGuard guard_;
  Optimizer optimizer_;
  std::optional<DynamicLossScale<Target>> loss_scale_;
  std::conditional_t<on_host, std::monostate, std::optional<detail::StepsUnderWay<Target>>> device_;
  std::int64_t steps_ = 0;
  std::int64_t first_step_ = 0; // of this process
  bool compared_ = false;       // raw gradients of ranks that should have the same
  bool broken_ = false;         // something threw, or runs
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
