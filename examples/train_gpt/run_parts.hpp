// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Mesh, model and steps of a run of train_gpt, for a training and for its dry run.

#include "options.hpp"
#include "schedules.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/io/batch_plan.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/nn/attention/context.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/latent.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;
using namespace sw::axis;

/// @brief True if a training is compiled for a second set of layouts, without sequence parallelism. Trainings
/// in low precision, with the ring or on devices are compiled for one set only; with tp=1 both sets are the
/// same.
template <class Element, class Context, class Target>
inline constexpr bool has_plain_layouts =
    !sw::is_narrow<Element> && !std::is_same_v<Context, sw::RingContext> && Target::host_accessible;

/// @brief True for the layouts of models with experts.
template <class Layouts> inline constexpr bool has_experts = requires { typename Layouts::Owners; };

/// @brief Reads the settings of a published model's experts and of its latent attention.
inline void take_published(sw::LatentMoeConfig& config, const pretrained::Settings& settings) {
  const pretrained::ExpertSettings& experts = settings.experts;
  config.shared_hidden = experts.shared_hidden;
  if (experts.sigmoid) {
    config.routing.scores = sw::RouterScores::sigmoid;
    config.routing.scale = experts.scale;
    config.routing.groups = experts.groups;
    config.routing.kept_groups = experts.kept_groups;
    config.routing.group_score = sw::GroupScore::two_largest;
    config.bias = {.loaded = true}; // DeepSeek-V3 ended its training with rate 0
  }
  if (!settings.latent)
    return;
  const pretrained::LatentSizes& latent = *settings.latent;
  config.head_elements = latent.rotary_width;
  config.latent = sw::LatentAttentionSizes{.query_rank = latent.query_rank,
                                           .key_value_rank = latent.key_value_rank,
                                           .plain_width = latent.plain_width,
                                           .rotary_width = latent.rotary_width,
                                           .value_width = latent.value_width};
  if (!latent.scaling)
    return;
  config.frequencies = latent.scaling->frequencies(latent.rotary_width, settings.rope_base);
  config.rotary_factor = latent.scaling->turned_factor();
  config.latent->score_factor = latent.scaling->score_factor();
}

template <class Config> [[nodiscard]] Config config_of(const Options& options) {
  Config config;
  config.layers = options.size.layers;
  config.width = options.size.d_model;
  config.heads = options.size.heads;
  config.kv_heads = options.size.kv_heads;
  config.hidden = options.size.hidden;
  config.vocabulary = options.size.vocabulary;
  config.sequence = options.size.sequence;
  config.tied_embedding = options.tied;
  config.dropout = options.dropout;
  config.recompute = options.recompute;
  if (options.published) {
    config.norm_epsilon = options.published->norm_epsilon;
    config.rope_base = options.published->rope_base;
    config.rope_scaling = options.published->rope_scaling;
    config.head_elements = options.published->head_width;
    config.qkv_bias = options.published->qkv_bias;
    config.head_norms = options.published->head_norms;
  }
  if constexpr (std::is_base_of_v<sw::MoeConfig, Config>) {
    config.dense_layers = options.size.dense_layers;
    config.experts = options.size.experts;
    config.expert_hidden = options.size.expert_hidden;
    config.routing = {.chosen = options.size.chosen};
    if (options.published) {
      take_published(config, *options.published);
    } else {
      config.shared_hidden = options.size.expert_hidden;
      config.routing.scores = sw::RouterScores::sigmoid;
      if (options.balance.empty()) {
        config.bias = {.rate = 0.001};
        config.balance = 0.0001;
      }
    }
    if (options.balance == "bias") {
      config.bias.rate = 0.001;
    } else if (!options.balance.empty()) {
      config.balance = 0.01;
      config.balance_over = options.balance == "sequence"     ? sw::BalanceOver::sequence
                            : options.balance == "microbatch" ? sw::BalanceOver::microbatch
                            : options.balance == "global"     ? sw::BalanceOver::global_batch
                                                              : sw::BalanceOver::previous_batch;
    }
    config.capacity = options.capacity;
    config.batch_sequences = std::int64_t{options.microbatch} * options.data_ranks();
  }
  return config;
}

/// @brief pp is outermost, tp innermost, whose ranks are neighbours. Collective.
template <class Layouts>
[[nodiscard]] auto pipeline_mesh(const sw::HostCommunicator& world, const Options& options) {
  const sw::DecoderExtents extents{.dpr = options.extent("dpr"),
                                   .dp = options.extent("dp"),
                                   .cp = options.extent("cp"),
                                   .tp = options.extent("tp"),
                                   .ep = options.extent("ep")};
  if constexpr (has_experts<Layouts>)
    return sw::moe_pipeline_mesh(world, options.extent("pp"), extents);
  else
    return sw::decoder_pipeline_mesh(world, options.extent("pp"), extents);
}

//! [options]
inline sw::TrainingOptions training_options(const Options& options, bool scales_loss) {
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

/// @brief This rank's stages of a decoder and the objects that execute their steps. One rank of pp holds all
/// of it in one stage.
template <class Layouts, class Element, class Target> struct RunParts {
  using Model = sw::PipelineModel<
      std::conditional_t<has_experts<Layouts>, sw::LatentMoeDecoder<Layouts, Element, Target>,
                         sw::Decoder<Layouts, Element, Target>>>;
  using Batch = typename Model::Batch;
  using Ids = typename Batch::Ids;
  /// Only the small range of float16 needs it.
  static constexpr bool scales_loss = std::is_same_v<Element, sw::float16>;

  RunParts(const sw::HostCommunicator& world, const Options& options)
      : whole(pipeline_mesh<Layouts>(world, options)), mesh(sw::stage_mesh(whole)),
        plan(options.batch, options.data_ranks(), options.microbatch, options.accumulation),
        schedule(schedule_of(options)), model(mesh, whole.template communicator<pp>(), schedule.placement(),
                                              sw::LayerPartition(options.size.layers, schedule.stages()),
                                              config_of<typename Model::Config>(options), options.seed),
        training(mesh, model, whole.world(), whole.template communicator<pp>(), schedule,
                 sw::AdamW(sw::AdamWOptions{.weight_decay = options.weight_decay, .max_norm = options.clip}),
                 training_options(options, scales_loss)) {}

  /// @brief Ids or targets of a microbatch of `rows` sequences per data rank.
  [[nodiscard]] Ids make_ids(std::size_t rows) const {
    return Ids(mesh, {static_cast<std::int64_t>(rows * plan.data_ranks()), model.config().sequence});
  }
  /// @brief Returns the key of a pass for dropout.
  [[nodiscard]] sw::BatchOrigin origin(std::int64_t step, std::size_t pass) const {
    return {static_cast<std::uint64_t>(step), plan.rows(pass, 0).begin};
  }

  using Whole = decltype(pipeline_mesh<Layouts>(std::declval<const sw::HostCommunicator&>(),
                                                std::declval<const Options&>()));
  Whole whole;
  decltype(sw::stage_mesh(std::declval<const Whole&>())) mesh; // of this rank's stages
  sw::BatchPlan plan;
  sw::Schedule schedule;
  Model model;
  sw::Training<Model> training;
};

} // namespace train_gpt
