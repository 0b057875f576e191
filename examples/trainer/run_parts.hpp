// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Mesh, model and steps of a task, for a training and for its dry run.

#include "options.hpp"
#include "schedules.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/train/checks/step_hashes.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <optional>
#include <type_traits>
#include <variant>

namespace trainer {

namespace sw = shardwright;
using namespace sw::axis;

/// @brief pp is outermost, tp innermost, whose ranks are neighbours. Collective.
[[nodiscard]] inline sw::DecoderPipelineMesh pipeline_mesh(const sw::HostCommunicator& world,
                                                           const RunOptions& options) {
  const sw::DecoderExtents extents{.dpr = options.extent("dpr"),
                                   .dp = options.extent("dp"),
                                   .cp = options.extent("cp"),
                                   .tp = options.extent("tp"),
                                   .ep = options.extent("ep")};
  return sw::decoder_pipeline_mesh(world, options.extent("pp"), extents);
}

//! [options]
inline sw::TrainingOptions training_options(const RunOptions& options, bool scales_loss) {
  sw::TrainingOptions out;
  out.non_finite = options.non_finite;
  out.empty_batch = options.empty_batch;
  out.record = options.records();
  out.capture = options.cuda_graph;
  if (scales_loss)
    out.loss_scale.emplace();
  return out;
}
//! [options]

/// @brief This rank's stages of a task's model and the objects that execute their steps. One rank of pp holds
/// all of it in one stage.
///
/// A task says what is trained. It has the types `Options`, `Model` (what sw::PipelineModel takes), `Source`
/// (what batches are read from) and `Batches<RunParts>`, which makes them; `has_experts`; and
/// config(options), the sizes of the model.
template <class AnyTask> struct RunParts {
  using Task = AnyTask;
  using Options = typename Task::Options;
  using Model = sw::PipelineModel<typename Task::Model>;
  using Batch = typename Model::Batch;
  using Element = typename Task::Model::element;
  using Target = typename Task::Model::target;
  /// Only the small range of float16 needs it.
  static constexpr bool scales_loss = std::is_same_v<Element, sw::float16>;
  /// Whether steps can be hashed.
  static constexpr bool reproducible = sw::is_reproducible<Target> && !sw::counts_only<Target>;

  //! [training]
  RunParts(const sw::HostCommunicator& world, const Options& options)
      : config(Task::config(options)), whole(pipeline_mesh(world, options)), mesh(sw::stage_mesh(whole)),
        pipeline(whole.template communicator<pp>()), schedule(schedule_of(options)),
        model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(config.layers), schedule.stages()), config, options.seed),
        training(mesh, model, whole.world(), pipeline, schedule,
                 sw::AdamW(sw::AdamWOptions{.weight_decay = options.weight_decay, .max_norm = options.clip}),
                 watched(training_options(options, scales_loss), options)) {}
  //! [training]

  typename Model::Config config;
  sw::DecoderPipelineMesh whole;
  sw::DecoderMesh mesh; // of this rank's stages
  sw::HostCommunicator pipeline;
  sw::Schedule schedule;
  Model model;
  /// Of each step, if a reproducible run records or verifies them.
  std::conditional_t<reproducible, std::optional<sw::StepHashes<Model>>, std::monostate> hashes;
  sw::Training<Model> training;

private:
  [[nodiscard]] sw::TrainingOptions watched(sw::TrainingOptions out, const Options& options) {
    if constexpr (reproducible)
      if (options.verify || !options.record_hashes.empty())
        hashes.emplace(model, whole.world()).watch(out);
    return out;
  }
};

} // namespace trainer
