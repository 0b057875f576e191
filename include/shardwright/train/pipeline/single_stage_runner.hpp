// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a step's microbatches through a model in one piece or in stages.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>
#include <shardwright/train/gradient/pass_position.hpp>

#include <cstddef>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template <class Model>
concept Pipelined = requires {
  typename Model::Runner;
};

/// Runs the microbatches of a step through a model in one piece.
template <class Model> class SingleStageRunner {
public:
  using Batch = typename Model::Batch;
  using Loss = typename Model::Loss;
  explicit SingleStageRunner(Model& model) : model_(model) {}

  [[nodiscard]] Loss run(std::span<const Batch> batches) {
    Loss loss{};
    if constexpr (WholeBatchLoss<Loss>) {
      for (const Batch& batch : batches)
        model_.count(batch);
      model_.end_forwards();
    }
    for (std::size_t i = 0; i < batches.size(); ++i)
      loss += model_.forward_backward(batches[i], position_of_pass(i, batches.size()));
    return loss;
  }
  [[nodiscard]] Loss evaluate(std::span<const Batch> batches) {
    Loss loss{};
    for (const Batch& batch : batches)
      loss += model_.evaluate(batch);
    return loss;
  }

private:
  Model& model_;
};

template <class Model> struct RunnerOf { using type = SingleStageRunner<Model>; };
template <Pipelined Model> struct RunnerOf<Model> { using type = typename Model::Runner; };

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
