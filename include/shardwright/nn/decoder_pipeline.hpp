// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The stages of a decoder that one rank of a pipeline holds.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/nn/decoder_stage.hpp>
#include <shardwright/schedule/layer_partition.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief This rank's part of a decoder: a stage for each chunk of a placement.
///
/// Tied tables are one object where a rank holds both ends, and copies with summed gradients where two ranks
/// do. Where each stage is held by two ranks (DualPipe), all their parameters are copies.
template <class Layouts, class Element = float, class Target = DefaultTarget>
class DecoderPipeline {
public:
  using Stage = DecoderStage<Layouts, Element, Target>;
  using Loss = typename Stage::Loss;
  using target = Target;
  using element = Element;

  /// @brief Collective over `ranks`, the ranks of the pipeline.
  /// @param mesh the mesh of this rank's stages, without the pipeline's axis
  /// @throws InvalidArgument where the sizes do not fit one another, the mesh or the partition.
  template <class Mesh>
  DecoderPipeline(const Mesh& mesh, HostCommunicator ranks, const StagePlacement& placement,
                  const LayerPartition& layers, const DecoderConfig& config, std::uint64_t seed)
      : config_(config) {
    check(layers, placement, config);
    const int rank = ranks.rank();
    const int last = placement.stages() - 1;
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      order_.emplace_back(placement.stage_of(rank, chunk), chunk);
    std::sort(order_.begin(), order_.end());
    std::shared_ptr<typename Stage::Table> table;
    stages_.resize(order_.size());
    for (const auto& [number, chunk] : order_) {
      const LayerRange range = layers[number];
      auto& stage = stages_[static_cast<std::size_t>(chunk)];
      stage = std::make_unique<Stage>(
          mesh, config, seed,
          DecoderPart{.begin = range.begin, .end = range.end, .first = number == 0, .last = number == last},
          table);
      if (number == 0)
        table = stage->embedding();
    }
    join_copies(ranks, placement);
  }

  [[nodiscard]] const DecoderConfig& config() const noexcept { return config_; }
  /// @brief The factor on the loss's gradient, which GradAccumulator takes back; the same on all ranks.
  [[nodiscard]] const LossScaleOn<Target>& loss_scale() const noexcept {
    return stages_.front()->loss_scale();
  }
  void set_loss_scale(const LossScaleOn<Target>& scale) {
    for (const auto& stage : stages_)
      stage->set_loss_scale(scale);
  }
  /// @brief The stages by chunk, as a runner takes them.
  [[nodiscard]] std::vector<Stage*> chunks() const {
    std::vector<Stage*> out;
    for (const auto& stage : stages_)
      out.push_back(stage.get());
    return out;
  }

  /// @brief Visits this rank's stages in the order of the model, as (number, stage).
  template <class Visitor>
  void for_each_stage(Visitor&& visit) {
    for (const auto& [number, chunk] : order_)
      visit(number, *stages_[static_cast<std::size_t>(chunk)]);
  }
  /// @brief Visits the parameters of this rank in the order of the model, which is one order on all ranks
  /// that hold copies.
  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    for_each_stage([&](int, Stage& stage) { stage.for_each_parameter(visit); });
  }

private:
  static void check(const LayerPartition& layers, const StagePlacement& placement,
                    const DecoderConfig& config) {
    if (layers.stages() == placement.stages() && layers.layers() == config.layers)
      return;
    throw InvalidArgument("DecoderPipeline: the partition must be of the model's " +
                          std::to_string(config.layers) + " layers over the schedule's " +
                          std::to_string(placement.stages()) + " stages, but it is of " +
                          std::to_string(layers.layers()) + " over " + std::to_string(layers.stages()) +
                          " (make it from the configuration and the schedule)");
  }

  /// Copies of a stage, or of a tied table, meet in one group: there is at most one other rank with any.
  void join_copies(HostCommunicator& ranks, const StagePlacement& placement) {
    const int rank = ranks.rank();
    const bool twice = placement.order == StageOrder::bidirectional;
    const int first = placement.rank_of(0, 0);
    const int last = placement.rank_of(placement.stages() - 1, 0);
    const bool tied_apart = config_.tied_embedding && first != last;
    if (!twice && !tied_apart)
      return;
    const int colour = twice                           ? std::min(rank, placement.ranks - 1 - rank)
                       : rank == first || rank == last ? 0
                                                       : -1;
    const HostCommunicator copies = ranks.split(colour, rank, twice ? "copies" : "tied");
    if (!copies.valid())
      return;
    if (twice)
      return for_each_parameter([&](auto& parameter) { parameter.set_copies(copies); });
    for (const auto& stage : stages_) {
      if (stage->part().first)
        stage->embedding()->set_copies(copies);
      if (stage->part().last)
        stage->head()->set_copies(copies);
    }
  }

  DecoderConfig config_;
  std::vector<std::pair<int, int>> order_; // (stage, chunk), by stage
  std::vector<std::unique_ptr<Stage>> stages_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
