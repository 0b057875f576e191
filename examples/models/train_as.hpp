// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A training of train_models over any task, and its dry run.

#include "training.hpp"

#include <shardwright/nn/decoder/model_plan.hpp>
#include <trainer/dry_run.hpp>
#include <trainer/trainer.hpp>

#include <vector>

namespace models {

/// @brief The samples of a run, [steps * batch, extent] for each of their members.
template <class MakeSample>
[[nodiscard]] std::vector<NamedTensor> all_samples(const Options& options, MakeSample sample) {
  std::vector<NamedTensor> out{
      {"features", {}, {}}, {"ids", {}, {}}, {"targets", {}, {}}, {"length", {}, {}}};
  const std::int64_t count = options.steps * options.batch;
  for (std::int64_t i = 0; i < count; ++i) {
    const Sample one = sample(static_cast<std::uint64_t>(i));
    out[0].values.insert(out[0].values.end(), one.features.begin(), one.features.end());
    out[1].values.insert(out[1].values.end(), one.ids.begin(), one.ids.end());
    out[2].values.insert(out[2].values.end(), one.targets.begin(), one.targets.end());
    out[3].values.push_back(one.length);
  }
  for (NamedTensor& each : out)
    each.shape = {count, static_cast<std::int64_t>(each.values.size()) / count};
  return out;
}

/// @brief Trains. Collective; rank 0 reports unless `quiet`.
template <class Task>
RunResult train_as(const sw::HostCommunicator& world, const Options& options, bool quiet,
                   const trainer::OnStep& on_step) {
  trainer::Trainer<Task> training(world, options, {}, quiet, on_step);
  const auto& config = training.parts().config;
  RunResult result;
  if (!options.dump.empty())
    result.initial = training.parameters();
  static_cast<trainer::RunResult&>(result) = training.run();
  if (result.stopped)
    return result;
  result.parameters = training.parameters();
  if (!options.dump.empty() && world.rank() == 0)
    result.data = all_samples(options, Task::sample(config, options.seed));
  if constexpr (Task::has_experts)
    result.rule = Task::rule(config);
  if constexpr (requires { config.heads; })
    result.heads = config.heads;
  return result;
}

/// @name The plans that a build compiles for each model, on a target
/// @{
template <class Target> using Fp32 = sw::ModelPlan<float, sw::DataParallel, Target>;
template <class Target> using Fp64 = sw::ModelPlan<double, sw::Zero3, Target>;
template <class Target> using Bf16 = sw::ModelPlan<sw::bfloat16, sw::Zero3, Target>;
template <class Target> using MoeFp32 = sw::ModelPlan<float, sw::DataParallelOver<sw::MoeZeroAxes>, Target>;
template <class Target> using MoeFp64 = sw::ModelPlan<double, sw::Zero3Over<sw::MoeZeroAxes>, Target>;
/// @}

/// @brief Registers the trainings of a task; there is one object for each model.
template <template <class> class Task> struct CompiledTrainings {
  using Target = sw::DefaultTarget;
  explicit CompiledTrainings(const std::string& model)
      : fp32({model, trainer::Precision::fp32, 0}, &train_as<Task<Fp32<Target>>>),
        fp64({model, trainer::Precision::fp64, 3}, &train_as<Task<Fp64<Target>>>),
        bf16({model, trainer::Precision::bf16, 3}, &train_as<Task<Bf16<Target>>>) {}
  CompiledTraining fp32, fp64, bf16;
};

} // namespace models
