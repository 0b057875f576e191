// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of small_training.hpp on the ranks of a pipeline, under any schedule.

#include "nn/small_training.hpp"

#include <shardwright/nn/decoder_pipeline.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/train/pipeline_runner.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nn_test {

/// @brief What a pipelined run leaves behind on a rank.
struct PipelineOutcome {
  std::vector<double> losses, norms;
  std::vector<std::int64_t> tokens;
  std::vector<double> evaluated; ///< The loss of the last batch after each step, without gradients.
  int peak_in_flight = 0;
  std::vector<sw::RankTimeline> timelines;
};

struct PipelineWay {
  int pp = 1;
  Way inside; ///< `accumulation` microbatches.

  [[nodiscard]] std::string text() const { return "pp=" + std::to_string(pp) + " " + inside.text(); }
};

template <class Layouts, class Element>
[[nodiscard]] PipelineOutcome train_pipeline_with(const sw::HostCommunicator& world, const Problem& problem,
                                                  const PipelineWay& way, const sw::Schedule& schedule,
                                                  const AtStep& at_step, bool record) {
  using namespace sw::axis;
  using Model = sw::DecoderPipeline<Layouts, Element>;
  using Stage = typename Model::Stage;
  using Ids = typename Stage::Ids;
  const sw::DeviceMesh whole{world, sw::extent<pp>(way.pp), sw::extent<dp>(way.inside.dp),
                             sw::extent<tp>(way.inside.tp)};
  const sw::DeviceMesh mesh{whole.template communicator<dp, tp>(), sw::extent<dp>(way.inside.dp),
                            sw::extent<tp>(way.inside.tp)};
  const sw::HostCommunicator pipeline = whole.template communicator<pp>();
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages()), problem.config,
              problem.seed);
  sw::PipelineRunner<Stage> runner(pipeline, schedule, model.chunks(), {.record = record});
  sw::GradAccumulator<Model> accumulator(model, world);
  sw::AdamW optimizer;
  const sw::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 4, .total_steps = problem.steps};
  PipelineOutcome out;
  out.losses.reserve(static_cast<std::size_t>(problem.steps));
  out.norms.reserve(out.losses.capacity());
  out.tokens.reserve(out.losses.capacity());
  const std::int64_t rows = problem.batch / schedule.microbatches();
  std::vector<typename Stage::Batch> batches;
  batches.reserve(static_cast<std::size_t>(schedule.microbatches()));
  for (int step = 0; step < problem.steps; ++step) {
    batches.clear();
    for (int pass = 0; pass < schedule.microbatches(); ++pass) {
      Ids ids(mesh, {rows, problem.config.sequence});
      Ids targets(mesh, {rows, problem.config.sequence});
      fill_batch(problem, step, pass * rows, ids, targets);
      batches.push_back({ids.share(), targets.share()});
    }
    const auto sums = runner.run(batches);
    out.peak_in_flight = runner.peak_in_flight();
    accumulator.add(sums.loss, sums.tokens);
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, rate(step));
    accumulator.restart();
    out.losses.push_back(summary.loss.value);
    out.norms.push_back(summary.gradient_norm);
    out.tokens.push_back(summary.tokens);
    if (at_step)
      at_step(step, mesh.pool_statistics().allocations);
  }
  if (record)
    out.timelines = sw::gather_timelines(pipeline, runner.timeline());
  const auto sums = runner.evaluate(batches);
  out.evaluated.push_back(sw::mean_over_mesh(mesh, sums.loss, sums.tokens, world).value);
  return out;
}

/// @brief Trains on the ranks of `world`; collective.
template <class Element>
[[nodiscard]] PipelineOutcome train_pipeline(const sw::HostCommunicator& world, const Problem& problem,
                                             const PipelineWay& way, const sw::Schedule& schedule,
                                             const AtStep& at_step = {}, bool record = false) {
  if (way.inside.sequence_parallel)
    return train_pipeline_with<sw::DecoderLayouts<true>, Element>(world, problem, way, schedule, at_step,
                                                                  record);
  return train_pipeline_with<sw::DecoderLayouts<false>, Element>(world, problem, way, schedule, at_step,
                                                                 record);
}

/// @brief Trains on thread ranks; the outcome of each of them.
template <class Element>
[[nodiscard]] std::vector<PipelineOutcome>
train_pipeline_on_threads(const Problem& problem, const PipelineWay& way, const sw::Schedule& schedule) {
  const int ranks = way.pp * way.inside.dp * way.inside.tp;
  std::vector<PipelineOutcome> outcomes(static_cast<std::size_t>(ranks));
  sw::LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::minutes(1);
  static_cast<void>(sw::detail::launch_threads(options, [&](sw::HostCommunicator world) {
    outcomes[static_cast<std::size_t>(world.rank())] = train_pipeline<Element>(world, problem, way, schedule);
    return 0;
  }));
  return outcomes;
}

} // namespace nn_test
