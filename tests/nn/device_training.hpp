// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of pipeline_training.hpp as Training executes it on a device: nothing in a step waits,
/// and the host reads a step's numbers while the next one runs.

#include "nn/pipeline_training.hpp"

#include <shardwright/tensor/memory/shared_memory.hpp>
#include <shardwright/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nn_test {

/// @brief The outcome of a rank of a device target, and its waits.
struct DeviceOutcome {
  PipelineOutcome pipeline;
  std::vector<std::int64_t> waits; ///< Waits of the host for the device, within each step.
  std::vector<std::size_t> pool;   ///< Blocks that the pool had taken after each step.
};

/// @brief How often the calling thread has waited for the device, if the target counts it.
template <class Target> [[nodiscard]] std::int64_t host_waits() {
  if constexpr (requires { Target::host_waits(); })
    return Target::host_waits();
  else
    return 0;
}

template <class Layouts, class Element, class Target>
[[nodiscard]] DeviceOutcome train_on_device(const sw::HostCommunicator& world, const Problem& problem,
                                            const PipelineWay& way, const sw::Schedule& schedule,
                                            const AtStep& at_step = {}) {
  using Model = sw::PipelineModel<sw::Decoder<Layouts, Element, Target>>;
  using Batch = typename Model::Batch;
  using Ids = typename Batch::Ids;
  const auto ranks = sw::decoder_pipeline_mesh(world, way.pp, way.inside.extents());
  const auto mesh = sw::stage_mesh(ranks);
  const sw::HostCommunicator pipeline = ranks.communicator<sw::axis::pp>();
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages()), problem.config,
              problem.seed);
  sw::Training<Model> training(mesh, model, world, pipeline, schedule);
  const sw::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 4, .total_steps = problem.steps};
  const std::int64_t rows = problem.batch / schedule.microbatches();
  const auto passes = static_cast<std::size_t>(schedule.microbatches());
  std::vector<Ids> tokens;
  for (std::size_t i = 0; i < 2 * passes; ++i)
    tokens.emplace_back(mesh, typename Ids::Shape{rows, problem.config.sequence});
  [[maybe_unused]] const std::size_t part = tokens.front().local_size();
  [[maybe_unused]] auto uploads = [&] {
    if constexpr (counts_only<Target>)
      return 0;
    else
      return sw::Uploads<std::int32_t, Target>(2 * passes * part);
  }();
  std::vector<Batch> batches;
  batches.reserve(passes);
  const auto batches_of = [&](std::int64_t step) {
    batches.clear();
    for (std::size_t pass = 0; pass < passes; ++pass) {
      Ids& ids = tokens[2 * pass];
      Ids& targets = tokens[2 * pass + 1];
      const std::int64_t first = static_cast<std::int64_t>(pass) * rows;
      if constexpr (!counts_only<Target>) {
        std::int32_t* const half = uploads.half().data();
        write_batch(problem, static_cast<int>(step), first, ids, half + 2 * pass * part,
                    half + (2 * pass + 1) * part);
        uploads.upload(2 * pass * part, ids);
        uploads.upload((2 * pass + 1) * part, targets);
      }
      batches.push_back(
          {ids.share(), targets.share(),
           sw::BatchOrigin{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(first)}});
    }
    if constexpr (!counts_only<Target>)
      uploads.flip();
    return std::span<const Batch>(batches);
  };
  DeviceOutcome out;
  Outcome& seen = out.pipeline.training;
  for (auto* numbers : {&seen.losses, &seen.norms})
    numbers->reserve(static_cast<std::size_t>(problem.steps));
  seen.tokens.reserve(static_cast<std::size_t>(problem.steps));
  out.waits.reserve(static_cast<std::size_t>(problem.steps));
  out.pool.reserve(static_cast<std::size_t>(problem.steps));
  const auto note = [&seen](const sw::StepReport& report) {
    seen.losses.push_back(report.loss);
    seen.norms.push_back(report.gradient_norm);
    seen.tokens.push_back(report.tokens);
  };
  for (int step = 0; step < problem.steps; ++step) {
    const std::int64_t before = host_waits<Target>();
    if (const std::optional<sw::StepReport> report = training.step(batches_of, rate(step)))
      note(*report);
    out.waits.push_back(host_waits<Target>() - before);
    out.pool.push_back(mesh.template pool_statistics<Target>().allocations);
    if (at_step)
      at_step(step, mesh.template pool_statistics<Target>());
  }
  if constexpr (!counts_only<Target>) {
    while (const std::optional<sw::StepReport> report = training.settle(batches_of))
      note(*report);
    out.pipeline.evaluated = training.mean(training.evaluate(batches)).value;
    model.for_each_parameter([&](auto& parameter) {
      seen.names.push_back(parameter.name());
      seen.parameters.push_back(whole(parameter.stored()));
    });
  }
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
