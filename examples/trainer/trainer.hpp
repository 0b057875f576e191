// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training loop of every program: any task, mesh, layouts and element type.

#include "checkpoints.hpp"
#include "compiled.hpp"
#include "hash_file.hpp"
#include "named_tensors.hpp"
#include "run_monitor.hpp"
#include "run_parts.hpp"
#include "run_result.hpp"
#include "timelines.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/io/checkpoint/model_state.hpp>
#include <shardwright/io/matrix_rate.hpp>
#include <shardwright/nn/experts/pipeline_loads.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>
#include <shardwright/train/optimizer/learning_rate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

/// @brief A run of a task with its data and its reports. Beside what RunParts needs, a task has
/// data_hash(source) and describe(options, source); `unit`, whose mean the loss is; `every_step`, whether
/// each step is printed; and initial_weights(options).
template <class Task> class Trainer {
public:
  using Parts = RunParts<Task>;
  using Options = typename Task::Options;
  using Target = typename Parts::Target;

  /// @brief Collective; rank 0 reports unless `quiet`.
  Trainer(const sw::HostCommunicator& world, const Options& options, const typename Task::Source& source,
          bool quiet, OnStep on_step = {})
      : clock_(std::make_shared<sw::CommunicationClock>(false)), options_(options), quiet_(quiet),
        reports_(!quiet && world.rank() == 0), on_step_(std::move(on_step)),
        memory_(announce_memory(world.rank())), run_(sw::timed(world, clock_, options.wide_axes()), options),
        checkpoints_(run_.whole.world(), options, options.continued_text(Task::data_hash(source)),
                     Task::initial_weights(options), adapts),
        batches_(run_, options, source),
        about_(Task::describe(options, source)), rate_{options.learning_rate, options.least_learning_rate,
                                                       options.warmup,
                                                       options.rate_steps > 0 ? options.rate_steps
                                                                              : options.steps} {
    if (memory_.total() > 0)
      run_.mesh.template set_memory_note<Target>(
          sw::memory_text(std::array{sw::NamedMemory{"this rank", memory_}}));
  }

  /// @brief Before the first step, after each `every` steps and after the last one, prints the lines that
  /// `lines` returns, which is called on every rank.
  void tell_every(std::int64_t every, std::function<std::vector<std::string>()> lines) {
    lines_every_ = every;
    lines_ = std::move(lines);
  }

  RunResult run() {
    RunResult result;
    result.steps.reserve(static_cast<std::size_t>(options_.steps));
    const RunFacts facts = facts_of_run();
    RunMonitor monitor(options_, facts, reports_, clock_);
    announce(facts.matrix_rate);
    const auto note = [&](const sw::StepReport& report) {
      monitor.end_step(report);
      result.steps.push_back({report.loss, report.gradient_norm});
      if constexpr (Task::has_experts) {
        loads_ = sw::expert_loads(run_.model, run_.pipeline);
        monitor.experts(report.step, loads_);
      }
      if (on_step_)
        on_step_(report, loads_, pool());
    };
    const auto batches = [this](std::int64_t step) { return batches_.training(step); };
    std::size_t allocations = 0;
    double best = std::numeric_limits<double>::infinity(); // validation loss
    int worse = 0;                                         // validations since
    checkpoints_.tell_progress([&monitor](const std::string& line) { monitor.note(line); });
    resume();
    tell_saves(monitor);
    const std::int64_t first = run_.training.steps();
    if (reports_ && !options_.record_hashes.empty())
      begin_hashes(options_.record_hashes, first);
    if (first >= options_.steps && first > 0)
      monitor.note(
          "resume: all " + std::to_string(first) +
          " steps of the run are done, so it is only validated (begin a longer one in another directory)");
    if (first == 0 && options_.steps > 0 && options_.validate_first) {
      best = validate();
      monitor.validation(0, best);
    }
    if (first == 0)
      tell_lines(monitor, 0);
    for (std::int64_t step = first; step < options_.steps && !checkpoints_.stopping(); ++step) {
      monitor.begin_step();
      //! [step]
      if (const std::optional<sw::StepReport> report = run_.training.step(batches, rate_(step)))
        note(*report);
      const bool saves = checkpoints_.due(step + 1);
      if (looks_after(step) || saves)
        while (const std::optional<sw::StepReport> report = run_.training.settle(batches)) {
          note(*report);
          monitor.begin_step();
        }
      //! [step]
      record_hashes(step + 1, result);
      //! [replicas]
      if (due(options_.check_replicas, step))
        run_.training.require_equal_replicas();
      //! [replicas]
      if (saves)
        save();
      tell_saves(monitor);
      if (step == first + 1)
        allocations = pool().allocations;
      if (due(options_.validate_every, step) && step + 1 < options_.steps) {
        const double loss = validate();
        monitor.validation(step + 1, loss);
        worse = loss < best ? 0 : worse + 1;
        best = std::min(best, loss);
        if (options_.patience > 0 && worse >= options_.patience) {
          monitor.note("step " + std::to_string(step + 1) + "  ends: the last " + std::to_string(worse) +
                       " validations were not below the best");
          if (options_.checkpoint.on() && !saves)
            save();
          break;
        }
      }
      if (due(lines_every_, step) && step + 1 < options_.steps)
        tell_lines(monitor, step + 1);
    }
    checkpoints_.finish();
    tell_saves(monitor);
    if (checkpoints_.stopping()) {
      result.seconds = monitor.finish(run_.whole.world(), pool().peak_bytes);
      result.stopped = true;
      return result;
    }
    if (options_.steps > first + 1 && options_.validate_every == 0 && !lines_)
      result.pool_allocations = static_cast<std::int64_t>(pool().allocations - allocations);
    const std::string memory = measured_memory(run_.training.steps() > std::max<std::int64_t>(first, 1));
    if (options_.records()) {
      const std::vector<sw::RankTimeline> world =
          sw::gather_timelines(run_.whole.world(), run_.training.runner().timeline(run_.mesh));
      if (reports_)
        write_timelines(options_, run_.schedule, world);
    }
    result.validation_loss = validate();
    monitor.validation(run_.training.steps(), result.validation_loss);
    if (run_.training.steps() > 0)
      tell_lines(monitor, run_.training.steps());
    result.seconds = monitor.finish(run_.whole.world(), pool().peak_bytes);
    if (reports_)
      std::printf("%s\n", memory.c_str());
    return result;
  }

  /// @brief Model and mesh, and the batches, for what a program does before or after its run.
  [[nodiscard]] Parts& parts() noexcept { return run_; }
  [[nodiscard]] auto& batches() noexcept { return batches_; }

  /// @brief All parameters, and after a step the biases of experts, on the first rank. Collective.
  [[nodiscard]] std::vector<NamedTensor> parameters() {
    std::vector<NamedTensor> out = gather_parameters(run_.model, run_.mesh, run_.pipeline);
    if constexpr (Task::has_experts)
      if (run_.config.bias.used())
        for (const sw::ExpertLoadReport& load : loads_)
          out.push_back({load.name + ".bias",
                         {static_cast<std::int64_t>(load.bias.size())},
                         {load.bias.begin(), load.bias.end()}});
    return out;
  }

private:
  /// Whether only adapters are trained.
  static constexpr bool adapts = [] {
    if constexpr (requires { Task::adapts; })
      return Task::adapts;
    else
      return false;
  }();
  struct FrozenParameters {
    typename Parts::Model& model;
    template <class Visitor> void for_each_parameter(Visitor&& visit) {
      model.for_each_parameter([&]<class P>(P& parameter) {
        if constexpr (!P::trained)
          visit(parameter);
      });
    }
  };

  [[nodiscard]] const sw::PoolStatistics& pool() const {
    return run_.mesh.template pool_statistics<Target>();
  }

  /// Collective: measures the matrix rate of a model that knows its operations.
  [[nodiscard]] RunFacts facts_of_run() {
    RunFacts out;
    out.tokens_per_step = static_cast<double>(options_.batch);
    if constexpr (requires { run_.config.sequence; })
      out.tokens_per_step *= static_cast<double>(run_.config.sequence);
    if constexpr (requires { run_.config.flops_per_token(); }) {
      out.flops_per_token = run_.config.flops_per_token(adapts ? 4 : 6); // those of adapters are few
      // On the model's instance, which keeps the products' plans and workspace.
      if (!quiet_)
        out.matrix_rate = sw::measure_matrix_rate<typename Parts::Element, Target>(
            run_.whole.world(), run_.mesh.template execution<Target>());
    }
    out.unit = Task::unit(options_);
    out.every_step = Task::every_step;
    return out;
  }
  /// Prints the expected memory before anything is allocated, one column per rank of pp; returns this rank's.
  /// Does nothing if the build lacks dry runs.
  [[nodiscard]] sw::MemoryTable announce_memory(int world_rank) const {
    const auto dry_run = CompiledDryRun<Options>::find(options_.kind());
    if (dry_run == nullptr || quiet_)
      return {};
    if (reports_) {
      constexpr int most = 8;
      const int stages = options_.extent("pp");
      std::vector<sw::NamedMemory> ranks;
      for (int rank = 0; rank < std::min(stages, most); ++rank)
        ranks.push_back(
            {"pp " + std::to_string(rank), dry_run(options_, rank * (options_.ranks / stages)).memory});
      std::fputs(sw::memory_text(ranks).c_str(), stdout);
    }
    return dry_run(options_, world_rank).memory;
  }
  void announce(double matrix_rate) const {
    if (!reports_)
      return;
    std::string what = options_.model;
    if constexpr (requires { run_.config.parameters(); })
      what = std::to_string(run_.config.parameters()) + " parameters";
    std::printf("%s on %s, %s\n", what.c_str(), options_.mesh_text().c_str(), about_.c_str());
    const int ranks = run_.whole.size();
    if (matrix_rate > 0)
      std::printf("matrix rate %.1f GFLOP/s, measured just now with large matrix products on %s; "
                  "steps reach a share of it\n",
                  matrix_rate * 1e-9,
                  ranks == 1 ? "one rank" : ("all " + std::to_string(ranks) + " ranks at once").c_str());
    if (run_.whole.template extent<pp>() > 1)
      std::printf("schedule %s: %d stages on %d ranks, %d microbatches\n", run_.schedule.name().c_str(),
                  run_.schedule.stages(), run_.schedule.ranks(), run_.schedule.microbatches());
    if (const std::string ignored = ignored_in_schedule(options_); !ignored.empty())
      std::printf("%s: %s\n", options_.schedule.c_str(), ignored.c_str());
    std::fflush(stdout);
  }
  /// The line that compares the pools' peaks with the predictions, which are those of steps after the first;
  /// the rank that is furthest off stands for all. Collective.
  [[nodiscard]] std::string measured_memory(bool as_predicted) const {
    const std::array<double, 2> own{static_cast<double>(pool().peak_bytes),
                                    static_cast<double>(memory_.total())};
    std::vector<double> all(own.size() * static_cast<std::size_t>(run_.whole.size()));
    sw::HostCommunicator world = run_.whole.world();
    world.all_gather(own, all);
    double largest = 0;
    double off = 0;
    for (std::size_t i = 0; i < all.size(); i += 2) {
      largest = std::max(largest, all[i]);
      if (const double share = all[i] / all[i + 1] - 1; std::abs(share) >= std::abs(off))
        off = share;
    }
    char line[160];
    if (as_predicted && memory_.total() > 0)
      std::snprintf(line, sizeof line, "memory: at most %s measured on a rank, %+.2f%% from the prediction",
                    sw::bytes_text(largest).c_str(), 100 * off);
    else
      std::snprintf(line, sizeof line, "memory: at most %s measured on a rank",
                    sw::bytes_text(largest).c_str());
    return line;
  }

  /// Whether the initial weights have the part that is saved: new adapters begin with their own.
  [[nodiscard]] bool initial_is_whole() const {
    if constexpr (adapts)
      return !options_.adapter.empty();
    else
      return true;
  }
  /// What checkpoints hold: all of the model, or its adapters.
  template <class Use> void with_saved_part(const Use& use) {
    if constexpr (adapts) {
      sw::TrainedParameters adapters{run_.model};
      use(adapters);
    } else {
      use(run_.model);
    }
  }
  /// Reads the weights or the checkpoint that the options name. Collective.
  void resume() {
    if constexpr (adapts) {
      FrozenParameters base{run_.model};
      read(*checkpoints_.initial(), base, false);
    }
    const sw::checkpoint::BlockSource* const source =
        checkpoints_.saved() != nullptr ? checkpoints_.saved() : checkpoints_.initial();
    if (source == nullptr || (checkpoints_.saved() == nullptr && !initial_is_whole()))
      return;
    with_saved_part([&](auto& part) { read(*source, part, checkpoints_.saved() != nullptr); });
    run_.training.resume(checkpoints_.place());
  }
  template <class Part> void read(const sw::checkpoint::BlockSource& source, Part& part, bool names_all) {
    auto& optimizer = run_.training.optimizer();
    std::vector<std::string> names;
    checkpoints_.together([&] { names = sw::checkpoint::require_state(source, part, optimizer); });
    if (names_all)
      checkpoints_.require_names(names);
    checkpoints_.together([&] { sw::checkpoint::read_state(source, part, optimizer); });
  }
  //! [save]
  /// Training continues while the copy made here is written.
  void save() {
    with_saved_part(
        [&](auto& part) { sw::checkpoint::stage(part, run_.training.optimizer(), checkpoints_.staging()); });
    checkpoints_.start(run_.training.progress());
  }
  //! [save]
  void tell_saves(RunMonitor& monitor) {
    for (const std::string& line : checkpoints_.news())
      monitor.note(line);
  }
  void tell_lines(RunMonitor& monitor, std::int64_t step) {
    if (lines_)
      for (const std::string& line : lines_())
        monitor.note("step " + std::to_string(step) + "  " + line);
  }
  void record_hashes(std::int64_t step, RunResult& result) {
    if constexpr (Parts::reproducible)
      if (run_.hashes) {
        std::vector<sw::HashedValue> values = run_.hashes->take();
        if (reports_ && !options_.record_hashes.empty())
          append_hashes(options_.record_hashes, step, values);
        if (options_.verify)
          result.hashes.emplace(step, std::move(values));
      }
  }
  [[nodiscard]] static bool due(std::int64_t every, std::int64_t step) {
    return every > 0 && (step + 1) % every == 0;
  }
  /// Whether the host reads the parameters after a step.
  [[nodiscard]] bool looks_after(std::int64_t step) const {
    return step + 1 == options_.steps || due(options_.check_replicas, step) ||
           due(options_.validate_every, step) || due(lines_every_, step);
  }
  /// Batches as large as in training, so that the held-out loss does not depend on how they are split.
  double validate() {
    typename Parts::Model::Loss sum{};
    for (std::size_t i = 0; i < batches_.validations(); ++i)
      sum += run_.training.evaluate(batches_.validation(i));
    return run_.training.mean(sum).value;
  }

  std::shared_ptr<sw::CommunicationClock> clock_;
  const Options& options_;
  bool quiet_, reports_;
  OnStep on_step_;
  sw::MemoryTable memory_;                  // predicted for this rank
  std::vector<sw::ExpertLoadReport> loads_; // of the last step
  Parts run_;
  Checkpoints checkpoints_;
  typename Task::template Batches<Parts> batches_;
  std::string about_;
  sw::WarmupCosine rate_;
  std::int64_t lines_every_ = 0;
  std::function<std::vector<std::string>()> lines_; // told at intervals; empty: none
};

} // namespace trainer
