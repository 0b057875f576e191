// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training loop of train_models over any task: a model with its sizes and samples.

#include "data.hpp"
#include "training.hpp"

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/mesh/counting_target.hpp>
#include <shardwright/models.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/nn/experts/pipeline_loads.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/pipeline/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace models {

namespace sw = shardwright;

/// @brief True for tasks whose models have experts, and whose meshes have ep.
template <class Task> inline constexpr bool has_experts = requires { typename Task::Owners; };

/// @brief The rows of a microbatch.
struct Rows {
  std::uint64_t step;
  std::int64_t first; ///< In the batch.
  std::int64_t count;
  std::int64_t batch;
  std::uint64_t seed;

  [[nodiscard]] sw::BatchOrigin origin() const { return {step, static_cast<std::uint64_t>(first)}; }
  /// @brief The number of the sample in row `row` of the batch.
  [[nodiscard]] std::uint64_t number(std::int64_t row) const {
    return step * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
  }
};

/// @brief Fills a tensor with one member of its rows' samples.
template <class Tensor, class MakeSample, class Values>
void load(Tensor& tensor, const Rows& rows, MakeSample sample, Values Sample::*member) {
  using Element = typename Tensor::value_type;
  sw::load_rows(
      tensor,
      [&](std::int64_t row, std::span<Element> to) {
        const Sample one = sample(rows.number(row));
        if constexpr (requires { (one.*member).begin(); })
          std::transform((one.*member).begin(), (one.*member).end(), to.begin(),
                         [](auto value) { return static_cast<Element>(value); });
        else
          to.front() = one.*member;
      },
      rows.first);
}

/// @brief Ids and targets of a language model.
template <class Batch, class Mesh, class MakeSample>
[[nodiscard]] Batch load_text(const Mesh& mesh, std::int64_t sequence, const Rows& rows, MakeSample sample) {
  typename Batch::Ids ids(mesh, {rows.count, sequence}), targets(mesh, {rows.count, sequence});
  load(ids, rows, sample, &Sample::ids);
  load(targets, rows, sample, &Sample::targets);
  return {ids.share(), targets.share(), rows.origin()};
}

/// @brief All parameters, whole, on the first rank, in the order of the model. Collective.
template <class Model, class Mesh>
[[nodiscard]] std::vector<NamedTensor> gather_parameters(Model& model, const Mesh& mesh,
                                                         const sw::HostCommunicator& pipeline) {
  std::vector<std::string> heads; // stage, name and shape of each, as text
  std::vector<double> numbers;
  model.for_each_stage([&](auto& stage) {
    stage.for_each_parameter([&](auto& parameter) {
      const auto values = sw::gather(parameter.stored(), 0);
      if (mesh.rank() != 0 || !parameter.first_copy())
        return;
      heads.insert(heads.end(), {std::to_string(stage.first_unit()), parameter.name()});
      std::string& shape = heads.emplace_back();
      for (const std::int64_t extent : parameter.shape())
        shape += std::to_string(extent) + " ";
      numbers.insert(numbers.end(), values.begin(), values.end());
    });
  });
  std::vector<std::pair<int, NamedTensor>> found;
  const auto all_heads = sw::gather_texts(pipeline, heads);
  const auto all_numbers = sw::all_gather_v(pipeline, numbers);
  for (std::size_t rank = 0; rank < all_heads.size(); ++rank) {
    auto from = all_numbers[rank].begin();
    for (auto head = all_heads[rank].begin(); head != all_heads[rank].end(); head += 3) {
      NamedTensor tensor{head[1], {}, {}};
      std::size_t size = 1;
      std::istringstream shape(head[2]);
      for (std::int64_t extent = 0; shape >> extent; size *= static_cast<std::size_t>(extent))
        tensor.shape.push_back(extent);
      tensor.values.assign(from, from + static_cast<std::ptrdiff_t>(size));
      from += static_cast<std::ptrdiff_t>(size);
      found.emplace_back(std::stoi(head[0]), std::move(tensor));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedTensor> out;
  for (auto& [stage, tensor] : found)
    out.push_back(std::move(tensor));
  return out;
}

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

/// @brief The mesh of a task, with an axis that owns experts if the task has any. Collective.
template <class Task>
[[nodiscard]] auto pipeline_mesh(const sw::HostCommunicator& world, const Options& options) {
  const sw::DecoderExtents extents{.dpr = options.extent("dpr"),
                                   .dp = options.extent("dp"),
                                   .cp = options.extent("cp"),
                                   .tp = options.extent("tp"),
                                   .ep = options.extent("ep")};
  if constexpr (has_experts<Task>)
    return sw::moe_pipeline_mesh(world, options.extent("pp"), extents);
  else
    return sw::decoder_pipeline_mesh(world, options.extent("pp"), extents);
}

/// @brief Trains. Collective.
///
/// `Task` has `Model<Plan>`, `config<Model>(options)`, `sample(config, seed)`, which returns a function of a
/// number, and `batch<Model>(mesh, config, rows, sample)`.
template <class Task, class Plan>
RunResult train_as(const sw::HostCommunicator& world, const Options& options, const Watch& watch) {
  using Description = typename Task::template Model<Plan>;
  using Model = sw::PipelineModel<Description>;
  using Batch = typename Model::Batch;
  using Target = typename Plan::target;
  sw::require_same_configuration(world, options.text());
  const auto config = Task::template config<Description>(options);
  const auto sample = Task::sample(config, options.seed);
  //! [training]
  const auto whole = pipeline_mesh<Task>(world, options);
  const auto mesh = sw::stage_mesh(whole);
  const sw::HostCommunicator pipeline = whole.template communicator<sw::axis::pp>();
  const sw::Schedule schedule =
      sw::make_schedule(options.schedule, options.extent("pp"), options.microbatches, options.chunks);
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(config.layers), schedule.stages()), config, options.seed);
  sw::Training<Model> training(
      mesh, model, whole.world(), pipeline, schedule,
      sw::AdamW(sw::AdamWOptions{.weight_decay = options.weight_decay, .max_norm = options.clip}));
  //! [training]
  RunResult result;
  if constexpr (!sw::counts_only<Target>)
    if (!options.dump.empty())
      result.initial = gather_parameters(model, mesh, pipeline);
  result.losses.reserve(static_cast<std::size_t>(options.steps));
  result.gradient_norms.reserve(static_cast<std::size_t>(options.steps));
  //! [loop]
  std::vector<Batch> batches;
  const auto read = [&](std::int64_t step) {
    batches.clear();
    const std::int64_t rows = options.batch / options.microbatches;
    for (int pass = 0; pass < options.microbatches; ++pass)
      batches.push_back(Task::template batch<Description>(
          mesh, config,
          Rows{static_cast<std::uint64_t>(step), pass * rows, rows, options.batch, options.seed}, sample));
    return std::span<const Batch>(batches);
  };
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const sw::StepReport report = training.step(read, options.learning_rate).value();
    if (watch.on_step)
      watch.on_step(report);
    result.losses.push_back(report.loss);
    result.gradient_norms.push_back(report.gradient_norm);
    if constexpr (has_experts<Task>) {
      result.loads.push_back(sw::expert_loads(model, pipeline));
      if (watch.on_loads)
        watch.on_loads(result.loads.back());
    }
  }
  //! [loop]
  if (watch.on_end)
    watch.on_end(mesh.template pool_statistics<Target>());
  if constexpr (!sw::counts_only<Target>) {
    result.parameters = gather_parameters(model, mesh, pipeline);
    if constexpr (has_experts<Task>)
      if (config.bias.rate != 0)
        for (const sw::ExpertLoadReport& load : result.loads.back())
          result.parameters.push_back({load.name,
                                       {static_cast<std::int64_t>(load.bias.size())},
                                       {load.bias.begin(), load.bias.end()}});
    if (!options.dump.empty() && world.rank() == 0)
      result.data = all_samples(options, sample);
  }
  if constexpr (has_experts<Task>)
    result.rule = Task::rule(config);
  if constexpr (requires { config.heads; })
    result.heads = config.heads;
  return result;
}

/// @brief A dry run of the same: without data, ranks and memory. @tparam Plan of a training, on its target
template <class Task, class Plan> sw::DryRun dry_run_as(const Options& options, int rank) {
  using Counted =
      sw::ModelPlan<typename Plan::element, typename Plan::zero, sw::Counting<typename Plan::target>>;
  return sw::dry_run(options.ranks(), rank, [&](const sw::HostCommunicator& world) {
    static_cast<void>(train_as<Task, Counted>(world, options, {}));
  });
}

/// @name The plans that a build compiles for each model
/// @{
using Fp32 = sw::ModelPlan<float, sw::DataParallel>;
using Fp64 = sw::ModelPlan<double, sw::Zero3>;
using Bf16 = sw::ModelPlan<sw::bfloat16, sw::Zero3>;
using MoeFp32 = sw::ModelPlan<float, sw::DataParallelOver<sw::MoeZeroAxes>>;
using MoeFp64 = sw::ModelPlan<double, sw::Zero3Over<sw::MoeZeroAxes>>;
/// @}

/// @brief Registers the trainings of a task; there is one object for each model.
template <class Task> struct CompiledTrainings {
  explicit CompiledTrainings(const std::string& model)
      : fp32({model, "fp32", 0}, &train_as<Task, Fp32>), fp64({model, "fp64", 3}, &train_as<Task, Fp64>),
        bf16({model, "bf16", 3}, &train_as<Task, Bf16>) {}
  CompiledTraining fp32, fp64, bf16;
};

} // namespace models
