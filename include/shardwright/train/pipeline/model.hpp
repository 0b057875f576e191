// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The stages of a model that one rank of a pipeline holds.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/layer_partition.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/stage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// @param own paths, each followed by its stage
/// @throws InvalidArgument on all ranks if a path has two stages.
void require_one_stage(const HostCommunicator& ranks, const std::vector<std::string>& own);
/// @throws InvalidArgument on all ranks if uses of a tied parameter differ.
void require_one_type(const HostCommunicator& copies, const ParameterBase& parameter);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void require_one_stage(const HostCommunicator& ranks,
                                          const std::vector<std::string>& own) {
  std::map<std::string, std::string> stage_of;
  for (const std::vector<std::string>& texts : gather_texts(ranks, own))
    for (std::size_t i = 0; i < texts.size(); i += 2)
      if (stage_of.try_emplace(texts[i], texts[i + 1]).first->second != texts[i + 1])
        reject_repeated_path(texts[i]);
}

SHARDWRIGHT_INLINE void require_one_type(const HostCommunicator& copies, const ParameterBase& parameter) {
  const std::string own = parameter.type_text();
  for (const std::vector<std::string>& other : gather_texts(copies, {own}))
    if (other.front() != own)
      throw InvalidArgument("PipelineModel: all uses of the tied parameter " + parameter.name() +
                            " must have the same type, but one is " + own + " and another " + other.front() +
                            " (use one Parameter type in both parts)");
}
#endif

} // namespace detail

/// @brief This rank's part of a model: a stage for each chunk of a placement.
///
/// Tied parameters are one object if a rank holds several of their uses, and copies with summed gradients if
/// several ranks do. If each stage is held by two ranks (DualPipe), all their parameters are copies.
template <class Model> class PipelineModel : public detail::ElementOfModel<Model> {
public:
  using Stage = shardwright::Stage<Model>;
  using Runner = PipelineRunner<Stage>; ///< Of its microbatches.
  using Config = typename Model::Config;
  using Batch = typename Model::Batch;
  using Loss = typename Stage::Loss;
  using target = typename Model::target;

  /// @brief Collective over `ranks`, the ranks of the pipeline. Cost: gather_texts() of the paths of all
  /// parts, and a split for each tied parameter.
  /// @param mesh the mesh of this rank's stages, without the pipeline's axis
  /// @param layers which of the model's layers (its repeated parts) each stage holds; parts before them
  /// belong to the first stage, parts after them to the last
  /// @throws InvalidArgument if the sizes do not match one another, the mesh or the partition, or if two
  /// parts have the same path.
  template <class Mesh>
  PipelineModel(const Mesh& mesh, HostCommunicator ranks, const StagePlacement& placement,
                const LayerPartition& layers, const Config& config, std::uint64_t seed)
      : config_(config) {
    detail::check_model<Model>(mesh, config);
    check(layers, placement);
    const int rank = ranks.rank();
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      order_.emplace_back(placement.stage_of(rank, chunk), chunk);
    std::sort(order_.begin(), order_.end());
    stages_.resize(order_.size());
    for (const auto& [number, chunk] : order_)
      stages_[static_cast<std::size_t>(chunk)] =
          std::make_unique<Stage>(mesh, config, seed, units_of(layers, number), shared_);
    require_distinct_paths(ranks);
    if constexpr (detail::AddsAdapters<Config>)
      require_adapters(ranks);
    count_stages_of_ties();
    join_copies(ranks, placement, layers);
  }

  [[nodiscard]] const Config& config() const noexcept { return config_; }
  /// @brief The factor on the loss's gradient, which GradAccumulator removes; the same on all ranks.
  [[nodiscard]] const LossScale& loss_scale() const noexcept { return stages_.front()->loss_scale(); }
  void set_loss_scale(const LossScale& scale) {
    for (const auto& stage : stages_)
      stage->set_loss_scale(scale);
  }
  /// @brief The stages by chunk, as needed by a runner.
  [[nodiscard]] std::vector<Stage*> chunks() const {
    std::vector<Stage*> out;
    for (const auto& stage : stages_)
      out.push_back(stage.get());
    return out;
  }

  /// @brief Visits this rank's stages in the order of the model.
  template <class Visitor> void for_each_stage(Visitor&& visit) {
    for (const auto& [number, chunk] : order_)
      visit(*stages_[static_cast<std::size_t>(chunk)]);
  }
  /// @brief Visits the parameters of this rank in the order of the model, which is the same on all ranks that
  /// hold copies.
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    for_each_stage([&](Stage& stage) { stage.for_each_parameter(visit); });
  }

private:
  void check(const LayerPartition& layers, const StagePlacement& placement) const {
    const std::size_t own = detail::count_units<Model>(config_).layers;
    if (layers.stages() == placement.stages() && static_cast<std::size_t>(layers.layers()) == own)
      return;
    throw InvalidArgument("PipelineModel: the partition must be of the model's " + std::to_string(own) +
                          " layers over the schedule's " + std::to_string(placement.stages()) +
                          " stages, but it is of " + std::to_string(layers.layers()) + " over " +
                          std::to_string(layers.stages()) +
                          " (make it from the configuration and the schedule)");
  }

  [[nodiscard]] detail::UnitRange units_of(const LayerPartition& layers, int stage) const {
    const detail::UnitCounts counts = detail::count_units<Model>(config_);
    const LayerRange range = layers[stage];
    return {stage == 0 ? 0 : counts.before + static_cast<std::size_t>(range.begin),
            stage + 1 == layers.stages() ? counts.all : counts.before + static_cast<std::size_t>(range.end)};
  }

  /// Calls visit(stage, part) with every tied parameter of this rank, once for each part that uses it.
  template <class Visitor> void for_each_tied(Visitor visit) const {
    for (const auto& stage : stages_)
      stage->for_each_part([&](const detail::ListedPart& each) {
        if (each.tied)
          visit(*stage, each);
      });
  }

  /// A stage knows only its own parts; others may be on other ranks.
  /// @throws InvalidArgument on all ranks if two parts of the model have the same path.
  void require_distinct_paths(const HostCommunicator& ranks) const {
    std::vector<std::string> own; // paths and the stages that have them
    for (const auto& [number, chunk] : order_)
      stages_[static_cast<std::size_t>(chunk)]->for_each_part([&, stage = number](const auto& each) {
        own.insert(own.end(), {each.path, each.tied ? "tied" : std::to_string(stage)});
      });
    detail::require_one_stage(ranks, own);
  }

  /// @throws InvalidArgument on all ranks if no stage has an adapter.
  void require_adapters(const HostCommunicator& ranks) const {
    std::vector<std::string> own;
    for (const auto& stage : stages_)
      own.resize(own.size() + stage->adapters());
    std::size_t all = 0;
    for (const std::vector<std::string>& each : gather_texts(ranks, own))
      all += each.size();
    config_.adapters.require_some(all);
  }

  /// A tied parameter gets a last pass from every stage of this rank that holds it.
  void count_stages_of_ties() const {
    std::map<const ParameterBase*, std::set<const Stage*>> stages;
    for_each_tied([&](const Stage& stage, const detail::ListedPart& tied) {
      auto& of_it = stages[tied.parameter];
      of_it.insert(&stage);
      tied.parameter->set_stages(static_cast<int>(of_it.size()));
    });
  }

  /// The ranks of the pipeline that hold a tied parameter, by its name, in the order of the model's parts.
  struct Holders {
    std::string name;
    std::vector<int> ranks;
  };
  [[nodiscard]] std::vector<Holders> tied_holders(const StagePlacement& placement,
                                                  const LayerPartition& layers) const {
    std::vector<Holders> out;
    detail::for_each_tie<Model>(config_, [&](std::string_view name, std::size_t unit) {
      auto known =
          std::find_if(out.begin(), out.end(), [&](const Holders& each) { return each.name == name; });
      if (known == out.end())
        known = out.insert(out.end(), Holders{std::string(name), {}});
      for (int stage = 0; stage < placement.stages(); ++stage)
        if (units_of(layers, stage).contains(unit))
          if (const int rank = placement.rank_of(stage, 0);
              std::find(known->ranks.begin(), known->ranks.end(), rank) == known->ranks.end())
            known->ranks.push_back(rank);
    });
    return out;
  }

  /// Copies of a stage, or of a tied parameter, share a group.
  void join_copies(HostCommunicator& ranks, const StagePlacement& placement, const LayerPartition& layers) {
    const int rank = ranks.rank();
    if (placement.order == StageOrder::bidirectional) {
      const HostCommunicator copies = ranks.split_by(
          [&](int each) {
            return GroupPlace{std::min(each, placement.ranks - 1 - each), each};
          },
          "copies");
      for (const auto& stage : stages_)
        stage->for_each_part([&](const detail::ListedPart& each) { each.part->set_copies(copies); });
      return;
    }
    for (const Holders& holders : tied_holders(placement, layers)) {
      if (holders.ranks.size() < 2)
        continue;
      const auto holds = [&](int each) {
        return std::find(holders.ranks.begin(), holders.ranks.end(), each) != holders.ranks.end();
      };
      const HostCommunicator copies = ranks.split_by(
          [&](int each) {
            return GroupPlace{holds(each) ? 0 : -1, each};
          },
          "tied");
      if (!holds(rank))
        continue;
      const ParameterBase* copy = nullptr;
      for_each_tied([&](const Stage&, const detail::ListedPart& tied) {
        if (tied.path != holders.name)
          return;
        tied.parameter->set_copies(copies);
        copy = tied.parameter;
      });
      if (copy != nullptr)
        detail::require_one_type(copies, *copy);
    }
  }

  Config config_;
  SharedParts shared_;
  std::vector<std::pair<int, int>> order_; // (stage, chunk), by stage
  std::vector<std::unique_ptr<Stage>> stages_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
