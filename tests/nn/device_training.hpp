// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of pipeline_training.hpp as it is on a device: nothing in a step waits, and the host
/// reads a step's numbers while the next one is under way.

#include "nn/pipeline_training.hpp"

#include <shardwright/tensor/shared_memory.hpp>
#include <shardwright/train/step_guard.hpp>
#include <shardwright/train/step_reports.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nn_test {

/// @brief What a rank of a device target has waited for, beside its outcome.
struct DeviceOutcome {
  PipelineOutcome pipeline;
  std::vector<std::int64_t> waits; ///< Of the host for the device, within each step.
  std::vector<std::size_t> pool;   ///< Blocks that the pool had taken after each step.
};

/// @brief How often the calling thread has waited for the device, where the target counts it.
template <class Target>
[[nodiscard]] std::int64_t host_waits() {
  if constexpr (requires { Target::host_waits(); })
    return Target::host_waits();
  else
    return 0;
}

template <class Layouts, class Element, class Target>
[[nodiscard]] DeviceOutcome train_on_device(const sw::HostCommunicator& world, const Problem& problem,
                                            const PipelineWay& way, const sw::Schedule& schedule,
                                            const AtStep& at_step = {}) {
  using Model = sw::DecoderPipeline<Layouts, Element, Target>;
  using Stage = typename Model::Stage;
  using Ids = typename Stage::Ids;
  const auto ranks = sw::decoder_pipeline_mesh(world, way.pp, way.inside.extents());
  const auto mesh = sw::stage_mesh(ranks);
  const sw::HostCommunicator pipeline = ranks.communicator<sw::axis::pp>();
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages()), problem.config,
              problem.seed);
  sw::PipelineRunner<Stage> runner(pipeline, schedule, model.chunks(), way.options);
  sw::GradAccumulator<Model> accumulator(model, world);
  sw::StepGuard guard(sw::NonFinite::stop, world);
  sw::AdamW optimizer;
  sw::StepReports<Target> reports(world.deadline());
  const sw::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 4, .total_steps = problem.steps};
  const std::int64_t rows = problem.batch / schedule.microbatches();
  const auto passes = static_cast<std::size_t>(schedule.microbatches());
  std::vector<Ids> tokens;
  for (std::size_t i = 0; i < 2 * passes; ++i)
    tokens.emplace_back(mesh, typename Ids::Shape{rows, problem.config.sequence});
  const std::size_t part = tokens.front().local_size();
  sw::Uploads<std::int32_t, Target> uploads(2 * passes * part);
  std::vector<typename Stage::Batch> batches;
  batches.reserve(passes);
  DeviceOutcome out;
  Outcome& training = out.pipeline.training;
  for (auto* numbers : {&training.losses, &training.norms})
    numbers->reserve(static_cast<std::size_t>(problem.steps));
  training.tokens.reserve(static_cast<std::size_t>(problem.steps));
  out.waits.reserve(static_cast<std::size_t>(problem.steps));
  out.pool.reserve(static_cast<std::size_t>(problem.steps));
  const auto take = [&] {
    const sw::DeviceStepReport report = reports.take();
    training.losses.push_back(report.summary.loss.value);
    training.norms.push_back(report.summary.gradient_norm);
    training.tokens.push_back(report.summary.tokens);
  };
  for (int step = 0; step < problem.steps; ++step) {
    const std::int64_t before = host_waits<Target>();
    batches.clear();
    for (std::size_t pass = 0; pass < passes; ++pass) {
      Ids& ids = tokens[2 * pass];
      Ids& targets = tokens[2 * pass + 1];
      const std::int64_t first = static_cast<std::int64_t>(pass) * rows;
      std::int32_t* const half = uploads.half().data();
      write_batch(problem, step, first, ids, half + 2 * pass * part, half + (2 * pass + 1) * part);
      uploads.upload(2 * pass * part, ids);
      uploads.upload((2 * pass + 1) * part, targets);
      batches.push_back({ids.share(),
                         targets.share(),
                         {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(first)}});
    }
    uploads.flip();
    accumulator.add(runner.run(batches));
    const auto summary = accumulator.finish();
    static_cast<void>(guard.admit(model, accumulator, summary, step + 1));
    optimizer.step(model, summary, rate(step));
    accumulator.restart();
    reports.append(summary);
    if (reports.pending() > 1)
      take();
    out.waits.push_back(host_waits<Target>() - before);
    out.pool.push_back(mesh.template pool_statistics<Target>().allocations);
    if (at_step)
      at_step(step, mesh.template pool_statistics<Target>());
  }
  take();
  const auto sums = runner.evaluate(batches).read();
  out.pipeline.evaluated = sw::mean_over_mesh(mesh, sums.loss, sums.tokens, world).value;
  model.for_each_parameter([&](auto& parameter) {
    training.names.push_back(parameter.name());
    training.parameters.push_back(whole(parameter.stored()));
  });
  return out;
}

/// @brief Trains on thread ranks; the outcome of each of them.
template <class Train>
[[nodiscard]] std::vector<DeviceOutcome> device_outcomes(const PipelineWay& way, Train train) {
  std::vector<DeviceOutcome> out(static_cast<std::size_t>(way.ranks()));
  static_cast<void>(pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    out[static_cast<std::size_t>(world.rank())] = train(world);
    return PipelineOutcome{};
  }));
  return out;
}

} // namespace nn_test
