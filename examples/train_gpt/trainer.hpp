// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training loop of train_gpt over any mesh, layouts and element type.

#include "batch_reader.hpp"
#include "checkpoints.hpp"
#include "dry_run.hpp"
#include "final_parameters.hpp"
#include "run_monitor.hpp"
#include "run_parts.hpp"
#include "timelines.hpp"
#include "training.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/io/checkpoint/model_state.hpp>
#include <shardwright/io/matrix_rate.hpp>
#include <shardwright/nn/experts/pipeline_loads.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>
#include <shardwright/train/optimizer/learning_rate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

/// @brief A run with its data and its reports.
template <class Layouts, class Element, class Target = sw::DefaultTarget> class Trainer {
  using Parts = RunParts<Layouts, Element, Target>;
  using Stage = typename Parts::Model::Stage;
  using Batch = typename Parts::Batch;
  /// Random numbers for the sample, separate from those of every parameter.
  static constexpr std::uint64_t sampling_stream = ~std::uint64_t{0};

public:
  Trainer(const sw::HostCommunicator& world, const Options& options, const sw::ByteDataset& dataset,
          bool quiet)
      : clock_(std::make_shared<sw::CommunicationClock>(false)), options_(options), dataset_(dataset),
        reports_(!quiet && world.rank() == 0), memory_(announce_memory(world.rank())),
        run_(sw::timed(world, clock_, options.wide_axes()), options),
        checkpoints_(run_.whole.world(), options, dataset.hash()),
        reader_(run_), rate_{options.learning_rate, options.least_learning_rate, options.warmup,
                             options.steps} {
    if (has_dry_run(options))
      run_.mesh.template set_memory_note<Target>(
          sw::memory_text(std::array{sw::NamedMemory{"this rank", memory_}}));
  }

  RunResult run() {
    RunResult result;
    result.steps.reserve(static_cast<std::size_t>(options_.steps));
    // Runs on the model's instance, which keeps the products' plans and workspace.
    const double matrix_rate =
        sw::measure_matrix_rate<Element, Target>(run_.whole.world(), run_.mesh.template execution<Target>());
    const auto& config = run_.model.config();
    const double tokens = static_cast<double>(options_.batch) * static_cast<double>(config.sequence);
    RunMonitor monitor(options_, {tokens, config.flops_per_token(), matrix_rate}, reports_, clock_);
    announce(matrix_rate);
    const auto note = [&](const sw::StepReport& report) {
      monitor.end_step(report);
      result.steps.push_back({report.loss, report.gradient_norm});
      if constexpr (has_experts<Layouts>) {
        loads_ = sw::expert_loads(run_.model, run_.whole.template communicator<pp>());
        monitor.experts(report.step, loads_);
      }
    };
    const auto batches = [this](std::int64_t step) {
      return reader_.training(step, [&](std::size_t row, auto ids, auto targets) {
        dataset_.training(static_cast<std::uint64_t>(step), {row, row + 1}, ids, targets);
      });
    };
    std::size_t allocations = 0;
    checkpoints_.tell_progress([&monitor](const std::string& line) { monitor.note(line); });
    resume();
    tell_saves(monitor);
    const std::int64_t first = run_.training.steps();
    if (first >= options_.steps && first > 0)
      monitor.note(
          "resume: all " + std::to_string(first) +
          " steps of the run are done, so it is only validated (begin a longer one in another directory)");
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
      //! [replicas]
      if (due(options_.check_replicas, step))
        run_.training.require_equal_replicas();
      //! [replicas]
      if (saves)
        save();
      tell_saves(monitor);
      if (step == first + 1)
        allocations = pool().allocations;
      if (due(options_.validate_every, step) && step + 1 < options_.steps)
        monitor.validation(step + 1, validate());
    }
    checkpoints_.finish();
    tell_saves(monitor);
    if (checkpoints_.stopping()) {
      result.seconds = monitor.finish(run_.whole.world(), pool().peak_bytes);
      result.stopped = true;
      return result;
    }
    if (options_.steps > first + 1 && options_.validate_every == 0)
      result.pool_allocations = static_cast<std::int64_t>(pool().allocations - allocations);
    const std::string memory = measured_memory(options_.steps > first);
    if (options_.records()) {
      const std::vector<sw::RankTimeline> world =
          sw::gather_timelines(run_.whole.world(), run_.training.runner().timeline(run_.mesh));
      if (reports_)
        write_timelines(options_, run_.schedule, world);
    }
    if (checkpoints_.exports())
      export_model();
    result.validation_loss = validate();
    monitor.validation(options_.steps, result.validation_loss);
    result.seconds = monitor.finish(run_.whole.world(), pool().peak_bytes);
    if (reports_)
      std::printf("%s\n", memory.c_str());
    if (options_.sample > 0)
      result.sample = sample();
    if (options_.verify)
      result.parameters = gather_parameters();
    return result;
  }

private:
  [[nodiscard]] const sw::PoolStatistics& pool() const {
    return run_.mesh.template pool_statistics<Target>();
  }

  /// Prints the expected memory before anything is allocated, one column per rank of pp; returns this rank's.
  /// Does nothing if the build lacks dry runs.
  [[nodiscard]] sw::MemoryTable announce_memory(int world_rank) const {
    if (!has_dry_run(options_))
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
    const int ranks = run_.whole.size();
    std::printf("%lld parameters on %s, %zu %s of text\n"
                "matrix rate %.1f GFLOP/s, measured just now with large matrix products on %s; "
                "steps reach a share of it\n",
                static_cast<long long>(run_.model.config().parameters()), options_.mesh_text().c_str(),
                dataset_.bytes(), options_.published ? "tokens" : "bytes", matrix_rate * 1e-9,
                ranks == 1 ? "one rank" : ("all " + std::to_string(ranks) + " ranks at once").c_str());
    if (run_.whole.template extent<pp>() > 1)
      std::printf("schedule %s: %d stages on %d ranks, %d microbatches\n", run_.schedule.name().c_str(),
                  run_.schedule.stages(), run_.schedule.ranks(), run_.schedule.microbatches());
    if (const std::string ignored = ignored_in_schedule(options_); !ignored.empty())
      std::printf("%s: %s\n", options_.schedule.c_str(), ignored.c_str());
    std::fflush(stdout);
  }
  /// The line that compares the pools' peaks with the predictions, which are those of steps; the rank that is
  /// furthest off stands for all. Collective.
  [[nodiscard]] std::string measured_memory(bool trained) const {
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
    if (trained && has_dry_run(options_))
      std::snprintf(line, sizeof line, "memory: at most %s measured on a rank, %+.2f%% from the prediction",
                    sw::bytes_text(largest).c_str(), 100 * off);
    else
      std::snprintf(line, sizeof line, "memory: at most %s measured on a rank",
                    sw::bytes_text(largest).c_str());
    return line;
  }

  /// Resumes from a checkpoint if the options ask for it. Collective.
  void resume() {
    const sw::checkpoint::BlockSource* const source = checkpoints_.source();
    if (source == nullptr)
      return;
    auto& optimizer = run_.training.optimizer();
    std::vector<std::string> names;
    checkpoints_.together([&] { names = sw::checkpoint::require_state(*source, run_.model, optimizer); });
    checkpoints_.require_names(names);
    checkpoints_.together([&] { sw::checkpoint::read_state(*source, run_.model, optimizer); });
    run_.training.resume(checkpoints_.place());
  }
  //! [save]
  /// Training continues while the copy made here is written.
  void save() {
    sw::checkpoint::stage(run_.model, run_.training.optimizer(), checkpoints_.staging());
    checkpoints_.start(run_.training.progress());
  }
  //! [save]
  /// Writes the weights for other programs. Collective.
  void export_model() {
    sw::checkpoint::Staging staging;
    sw::checkpoint::stage(run_.model, run_.training.optimizer(), staging);
    checkpoints_.export_model(staging);
  }
  void tell_saves(RunMonitor& monitor) {
    for (const std::string& line : checkpoints_.news())
      monitor.note(line);
  }
  [[nodiscard]] static bool due(std::int64_t every, std::int64_t step) {
    return every > 0 && (step + 1) % every == 0;
  }
  /// Whether the host reads the parameters after a step.
  [[nodiscard]] bool looks_after(std::int64_t step) const {
    return step + 1 == options_.steps || due(options_.check_replicas, step) ||
           due(options_.validate_every, step);
  }

  double validate() {
    // Batches as large as in training, so that the held-out loss does not depend on how they are split.
    const std::size_t batch = run_.plan.batch();
    const std::size_t batches =
        dataset_.validation_batches(batch, static_cast<std::size_t>(options_.validation_batches));
    typename Stage::Loss sum{};
    for (std::size_t i = 0; i < batches; ++i)
      sum += run_.training.evaluate(reader_.passes(
          run_.plan.accumulation(), run_.plan.microbatch(), [&](std::size_t row, auto ids, auto targets) {
            dataset_.validation(i, batches, batch, {row, row + 1}, ids, targets);
          }));
    return run_.training.mean(sum).value;
  }

  /// Continues the prompt one byte at a time. Every data rank generates the same text: random numbers are
  /// keyed only by position.
  std::string sample() {
    using Whole = sw::Layout<3, typename Layouts::Rows>; // of cp and tp
    std::string text = options_.prompt.empty() ? std::string("The ") : options_.prompt;
    const auto sequence = static_cast<std::size_t>(run_.model.config().sequence);
    const auto vocabulary = static_cast<std::size_t>(run_.model.config().vocabulary);
    std::vector<double> weights(vocabulary);
    sw::HostCommunicator stages = run_.whole.template communicator<pp>();
    const int last_rank = run_.schedule.placement().rank_of(run_.schedule.stages() - 1, 0);
    for (int i = 0; i < options_.sample; ++i) {
      const std::size_t shown = std::min(text.size(), sequence);
      const auto batches = reader_.passes(1, 1, [&](std::size_t, auto ids, auto targets) {
        std::fill(ids.begin(), ids.end(), 0);
        std::fill(targets.begin(), targets.end(), -1);
        for (std::size_t t = 0; t < shown; ++t)
          ids[t] = static_cast<unsigned char>(text[text.size() - shown + t]);
      });
      std::array<std::uint8_t, 1> next{};
      run_.training.runner().run_forwards(
          batches, [&](Stage& last, auto in, const Batch& batch, auto& saved) {
            const auto scores = sw::redistribute<Whole>(last.predict(std::move(in), batch, saved));
            const std::size_t place = sw::row_of<typename Layouts::Order>(
                shown - 1, static_cast<std::int64_t>(sequence), run_.mesh.template extent<cp>());
            const auto values = sw::local_values(scores);
            next[0] = static_cast<std::uint8_t>(
                draw(values.data() + place * vocabulary, weights, static_cast<std::uint64_t>(i)));
          });
      stages.broadcast(next, last_rank);
      text.push_back(static_cast<char>(next[0]));
    }
    return text;
  }

  template <class Score>
  std::size_t draw(const Score* scores, std::vector<double>& weights, std::uint64_t number) const {
    const auto best = static_cast<std::size_t>(std::max_element(scores, scores + weights.size()) - scores);
    if (options_.temperature <= 0)
      return best;
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      total += weights[i] = std::exp(static_cast<double>(scores[i] - scores[best]) / options_.temperature);
    double left =
        sw::unit_interval(sw::random_words({options_.seed, sampling_stream}, number).word[0]) * total;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if ((left -= weights[i]) < 0)
        return i;
    return best;
  }

  std::vector<FinalParameter> gather_parameters() {
    std::vector<std::uint8_t> own;
    run_.model.for_each_stage([&](Stage& stage) {
      stage.for_each_parameter([&](auto& parameter) {
        const auto values = sw::gather(parameter.stored(), 0);
        if (run_.mesh.rank() == 0 && parameter.first_copy())
          pack(own, stage.first_unit(), parameter.name(), {values.begin(), values.end()});
      });
    });
    auto out = unpack(sw::all_gather_v(run_.whole.template communicator<pp>(), own));
    for (const sw::ExpertLoadReport& load : loads_)
      out.push_back({load.name + ".bias", {load.bias.begin(), load.bias.end()}});
    return out;
  }

  std::shared_ptr<sw::CommunicationClock> clock_;
  const Options& options_;
  const sw::ByteDataset& dataset_;
  bool reports_;
  sw::MemoryTable memory_;                  // predicted for this rank
  std::vector<sw::ExpertLoadReport> loads_; // of the last step
  Parts run_;
  Checkpoints checkpoints_;
  BatchReader<Parts> reader_;
  sw::WarmupCosine rate_;
};

/// @brief Trains on every rank of `world` with parameters of `Element`, sharded by `Zero`, and attention
/// over cp by `Context`, on a target. Collective; rank 0 reports unless `quiet`.
template <class Element, class Zero, class Context = sw::AllToAllContext, class Target = sw::DefaultTarget>
[[nodiscard]] RunResult train_as(const sw::HostCommunicator& world, const Options& options,
                                 const sw::ByteDataset& dataset, bool quiet) {
  if constexpr (requires { Target::use_device(0); })
    if (options.gpus > 1)
      Target::use_device(world.rank() % options.gpus);
  if constexpr (has_plain_layouts<Element, Context, Target>)
    if (!options.sequence_parallel)
      return Trainer<sw::DecoderLayouts<false, Zero, Context>, Element, Target>(world, options, dataset,
                                                                                quiet)
          .run();
  return Trainer<sw::DecoderLayouts<true, Zero, Context>, Element, Target>(world, options, dataset, quiet)
      .run();
}

/// @brief The same with experts in the layers.
template <class Element>
[[nodiscard]] RunResult train_experts(const sw::HostCommunicator& world, const Options& options,
                                      const sw::ByteDataset& dataset, bool quiet) {
  return Trainer<sw::MoeLayouts<>, Element>(world, options, dataset, quiet).run();
}

} // namespace train_gpt
