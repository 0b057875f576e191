// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model on a single stage: loss and gradients of microbatches, evaluation, predictions.

#include <shardwright/schedule/whole_batch_loss.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/pipeline/stage.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A single stage that holds the whole model, for programs without a pipeline: it needs no schedule,
/// and its steps may have different numbers of microbatches.
template <class Model> class SingleStageModel : public detail::ElementOfModel<Model> {
public:
  using Stage = shardwright::Stage<Model>;
  using Config = typename Model::Config;
  using Batch = typename Model::Batch;
  using Loss = typename Stage::Loss;
  using target = typename Model::target;

  /// @brief Initial values depend only on the seed, not on the mesh. Not collective.
  /// @throws InvalidArgument if the sizes are inconsistent or do not fit the mesh.
  template <class Mesh>
  SingleStageModel(const Mesh& mesh, const Config& config, std::uint64_t seed)
      : stage_((detail::check_model<Model>(mesh, config), mesh), config, seed,
               {0, detail::count_units<Model>(config).all}, shared_) {}

  [[nodiscard]] const Config& config() const noexcept { return stage_.config(); }
  /// @brief The factor on the loss's gradient, which GradAccumulator removes.
  [[nodiscard]] const LossScale& loss_scale() const noexcept { return stage_.loss_scale(); }
  void set_loss_scale(LossScale scale) { stage_.set_loss_scale(std::move(scale)); }

  /// @brief Processes one microbatch: returns its summed loss, and adds its gradients to the accumulator.
  ///
  /// Collective; cost: the transitions of the model and of its gradients. For a loss that needs the whole
  /// batch, first call count() for all microbatches and then end_forwards(). Gradients that are reduced for
  /// each microbatch (ZeRO-2, ZeRO-3) are sent part by part; those that are reduced once per step are sent
  /// with the last microbatch, or else in GradAccumulator::finish.
  /// @param position whether this is the last microbatch of the step
  [[nodiscard]] Loss forward_backward(const Batch& batch, PassPosition position = PassPosition::middle) {
    Loss loss{};
    stage_.expect_pass(Pass::backward);
    static_cast<void>(stage_.forward(std::nullopt, batch, saved_, loss));
    stage_.expect_pass(std::nullopt);
    static_cast<void>(stage_.backward(std::nullopt, batch, saved_, position));
    return loss;
  }
  /// @brief The microbatches of a step, after a counting pass if the loss needs the whole batch: returns
  /// their summed loss, and adds their gradients to the accumulator. Collective; cost: their passes.
  [[nodiscard]] Loss run(std::span<const Batch> batches) {
    Loss loss{};
    if (WholeBatchLoss<Loss> || stage_.reads_whole_batch()) {
      for (const Batch& batch : batches)
        count(batch);
      end_forwards();
    }
    for (std::size_t i = 0; i < batches.size(); ++i)
      loss += forward_backward(batches[i], position_of_pass(i, batches.size()));
    return loss;
  }
  /// @brief A forward pass of a microbatch for counting, before forward_backward.
  void count(const Batch& batch) { static_cast<void>(stage_.count(std::nullopt, batch, saved_)); }
  /// @brief Declares that all microbatches of a step are counted. Collective; cost: as of
  /// NamedPart::end_forwards, for each part.
  void end_forwards() { stage_.end_forwards(); }
  /// @brief The summed loss of a batch without gradients.
  [[nodiscard]] Loss evaluate(const Batch& batch) {
    Loss loss{};
    static_cast<void>(stage_.evaluate(std::nullopt, batch, saved_, loss));
    return loss;
  }
  [[nodiscard]] Loss evaluate(std::span<const Batch> batches) {
    Loss loss{};
    for (const Batch& batch : batches)
      loss += evaluate(batch);
    return loss;
  }
  /// @brief Returns the prediction of the model's last part, such as the logits of the next token.
  [[nodiscard]] auto predict(const Batch& batch) { return stage_.predict(std::nullopt, batch, saved_); }

  template <class Visitor> void for_each_stage(Visitor&& visit) { visit(stage_); }
  template <class Visitor> void for_each_parameter(Visitor&& visit) { stage_.for_each_parameter(visit); }

private:
  SharedParts shared_;
  Stage stage_;
  typename Stage::Saved saved_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
