// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of small_training.hpp on the ranks of a pipeline, under any schedule.

#include "nn/small_training.hpp"

#include <shardwright/nn/decoder.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/runner.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nn_test {

/// @brief A schedule, with the peaks of its ranks as proven.
struct ProvenSchedule {
  sw::Schedule schedule;
  std::vector<sw::RankProof> ranks;
};

/// @brief All policies that allow the numbers, with their own window.
[[nodiscard]] inline std::vector<ProvenSchedule> every_schedule(int ranks, int microbatches) {
  std::vector<ProvenSchedule> out;
  for (const std::string& name : sw::schedule_names()) {
    try {
      ProvenSchedule one{sw::make_schedule(name, ranks, microbatches),
                         std::vector<sw::RankProof>(static_cast<std::size_t>(ranks))};
      static_cast<void>(sw::prove(one.schedule, {}, one.schedule.window(), one.ranks));
      out.push_back(std::move(one));
    } catch (const sw::InvalidArgument&) {
      // The schedule does not allow the numbers.
    }
  }
  return out;
}

/// @brief The same orders with another window, if they need no more room for messages than it has.
[[nodiscard]] inline std::vector<ProvenSchedule> every_schedule(int ranks, int microbatches,
                                                                const sw::MessageWindow& window) {
  std::vector<ProvenSchedule> out;
  for (const ProvenSchedule& one : every_schedule(ranks, microbatches)) {
    std::vector<std::vector<sw::Step>> steps;
    for (int rank = 0; rank < ranks; ++rank)
      steps.emplace_back(one.schedule.steps(rank).begin(), one.schedule.steps(rank).end());
    ProvenSchedule other{
        sw::Schedule(one.schedule.name(), one.schedule.placement(), microbatches, std::move(steps), window),
        one.ranks};
    if (sw::prove(other.schedule).holds())
      out.push_back(std::move(other));
  }
  return out;
}

/// @brief Six layers, so that four ranks with two stages each have two empty ones among them.
[[nodiscard]] inline Problem pipeline_problem(bool tied) {
  Problem problem;
  problem.config = config_of_four();
  problem.config.layers = 6;
  problem.config.width = 16;
  problem.config.heads = 4;
  problem.config.kv_heads = 2;
  problem.config.hidden = 12;
  problem.config.tied_embedding = tied;
  problem.batch = 16;
  problem.steps = 8; // the first half with rising rates; each schedule and mesh repeats them
  return problem;
}

/// @brief The outcome of a pipelined run on a rank.
struct PipelineOutcome {
  Outcome training;     ///< With the parameters of this rank's stages.
  double evaluated = 0; ///< The loss of the last batch after the last step, without gradients.
  int peak_in_flight = 0;
  std::vector<sw::RankTimeline> timelines; ///< Of the last step, if requested.
};

/// @brief How the training is distributed; the schedule sets the microbatches.
struct PipelineWay {
  int pp = 1;
  Way inside;
  sw::PipelineOptions options{};
  std::vector<int> layers{}; ///< Of each stage; if empty, they are spread evenly.
  std::size_t bucket_bytes = sw::default_bucket_bytes;

  [[nodiscard]] int ranks() const { return pp * inside.ranks(); }
  [[nodiscard]] std::string text() const { return "pp=" + std::to_string(pp) + " " + inside.text(); }
};

template <class Layouts, class Element, class Target = sw::DefaultTarget>
[[nodiscard]] PipelineOutcome train_pipeline_with(const sw::HostCommunicator& world, const Problem& problem,
                                                  const PipelineWay& way, const sw::Schedule& schedule,
                                                  const AtStep& at_step) {
  using Model = sw::PipelineModel<sw::Decoder<Layouts, Element, Target>>;
  using Stage = typename Model::Stage;
  using Ids = typename Model::Batch::Ids;
  const auto ranks = sw::decoder_pipeline_mesh(world, way.pp, way.inside.extents());
  const auto mesh = sw::stage_mesh(ranks);
  const sw::HostCommunicator pipeline = ranks.communicator<sw::axis::pp>();
  Model model(mesh, pipeline, schedule.placement(),
              way.layers.empty()
                  ? sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages())
                  : sw::LayerPartition(static_cast<int>(problem.config.layers), way.layers),
              problem.config, problem.seed);
  sw::PipelineRunner<Stage> runner(pipeline, schedule, model.chunks(), way.options);
  sw::GradAccumulator<Model> accumulator(model, world);
  accumulator.set_bucket_bytes(way.bucket_bytes);
  sw::AdamW optimizer;
  const sw::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 4, .total_steps = problem.steps};
  PipelineOutcome out;
  out.training.losses.reserve(static_cast<std::size_t>(problem.steps));
  out.training.norms.reserve(static_cast<std::size_t>(problem.steps));
  out.training.tokens.reserve(static_cast<std::size_t>(problem.steps));
  const std::int64_t rows = problem.batch / schedule.microbatches();
  std::vector<typename Stage::Batch> batches;
  batches.reserve(static_cast<std::size_t>(schedule.microbatches()));
  for (int step = 0; step < problem.steps; ++step) {
    batches.clear();
    for (int pass = 0; pass < schedule.microbatches(); ++pass) {
      Ids ids(mesh, {rows, problem.config.sequence});
      Ids targets(mesh, {rows, problem.config.sequence});
      if constexpr (!counts_only<Target>)
        fill_batch(problem, step, pass * rows, ids, targets);
      batches.push_back(
          {ids.share(), targets.share(),
           sw::BatchOrigin{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(pass * rows)}});
    }
    const auto sums = runner.run(batches);
    out.peak_in_flight = runner.peak_in_flight();
    accumulator.add(sums.loss, sums.tokens);
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, rate(step));
    accumulator.restart();
    out.training.losses.push_back(summary.loss.value);
    out.training.norms.push_back(summary.gradient_norm);
    out.training.tokens.push_back(summary.tokens);
    if (at_step)
      at_step(step, mesh.template pool_statistics<Target>());
  }
  if constexpr (!counts_only<Target>) {
    if (way.options.record)
      out.timelines = sw::gather_timelines(pipeline, runner.timeline());
    const auto sums = runner.evaluate(batches);
    out.evaluated = sw::mean_over_mesh(mesh, sums.loss, sums.tokens, world).value;
    model.for_each_parameter([&](auto& parameter) {
      out.training.names.push_back(parameter.name());
      out.training.parameters.push_back(whole(parameter.stored()));
    });
  }
  return out;
}

/// @brief Trains on the ranks of `world`; collective.
template <class Element>
[[nodiscard]] PipelineOutcome train_pipeline(const sw::HostCommunicator& world, const Problem& problem,
                                             const PipelineWay& way, const sw::Schedule& schedule,
                                             const AtStep& at_step = {}) {
  if (way.inside.sequence_parallel)
    return train_pipeline_with<sw::DecoderLayouts<true>, Element>(world, problem, way, schedule, at_step);
  return train_pipeline_with<sw::DecoderLayouts<false>, Element>(world, problem, way, schedule, at_step);
}

/// @brief The same in single precision, compiled once, in decoder_pipeline_test.cpp.
[[nodiscard]] PipelineOutcome train_pipeline_single(const sw::HostCommunicator& world, const Problem& problem,
                                                    const PipelineWay& way, const sw::Schedule& schedule,
                                                    const AtStep& at_step);

/// @brief Runs `train(world)` on thread ranks; the outcome of each of them.
template <class Train>
[[nodiscard]] std::vector<PipelineOutcome> pipeline_outcomes(const PipelineWay& way, Train train) {
  const int ranks = way.ranks();
  std::vector<PipelineOutcome> outcomes(static_cast<std::size_t>(ranks));
  sw::LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_thread_ranks(options, [&](sw::HostCommunicator world) {
    outcomes[static_cast<std::size_t>(world.rank())] = train(world);
  });
  return outcomes;
}

/// @brief Trains on thread ranks; the outcome of each of them.
template <class Element>
[[nodiscard]] std::vector<PipelineOutcome>
train_pipeline_on_threads(const Problem& problem, const PipelineWay& way, const sw::Schedule& schedule) {
  return pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    return train_pipeline<Element>(world, problem, way, schedule);
  });
}

} // namespace nn_test
