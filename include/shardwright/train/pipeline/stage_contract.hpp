// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The requirements of a pipeline runner on a stage.

#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/gradient/pass_position.hpp>

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A part of a model that a pipeline runs microbatch by microbatch.
///
/// `Input` is the tensor that it gets from the previous stage, `Output` the one that it passes to the next;
/// gradients go in the other direction, with the same types. `Batch` is the data of a microbatch,
/// `make_input` allocates memory for an input from another rank, `Saved` is the state that a microbatch keeps
/// between its passes, `Loss` a sum of losses that starts empty and has `+=`. Passes that compute
/// weight gradients get their place in the step. If it has `expect_pass(next)`, that is called before each
/// pass with the following pass that reads its weights. If it has `takes_gradient()` and
/// `returns_gradient()`, which say alike on all ranks whether this stage or one before it is trained, and
/// whether one before it is, other gradients are neither passed to it nor expected of it.
template <class Stage>
concept PipelineStage = AnyShardedTensor<typename Stage::Input> && AnyShardedTensor<typename Stage::Output> &&
    std::default_initializable<typename Stage::Saved> && std::default_initializable<typename Stage::Loss> &&
    requires(Stage& stage, const typename Stage::Batch& batch, typename Stage::Saved& saved,
             typename Stage::Loss& loss, std::optional<typename Stage::Input> in,
             std::optional<typename Stage::Output> out) {
  { stage.make_input(batch) } -> std::same_as<typename Stage::Input>;
  { stage.forward(std::move(in), batch, saved, loss) } -> std::same_as<decltype(out)>;
  { stage.backward(std::move(out), batch, saved, PassPosition::last) } -> std::same_as<decltype(in)>;
  { stage.input_gradient(std::move(out), saved) } -> std::same_as<decltype(in)>;
  stage.weight_gradient(batch, saved, PassPosition::last);
  loss += loss;
};

namespace detail {

/// Checks that a stage's output has the layout of the next stage's input, and of both gradients.
template <class Output, class Input> struct StageHandover {
  static_assert(
      std::is_same_v<Output, Input>,
      "PipelineRunner: a stage's output must have the layout of the next stage's input (redistribute it at the end of the stage)");
  static_assert(
      !Input::value.has_partial(),
      "PipelineRunner: a stage's output must not be Partial, an incomplete sum whose gradient has a different layout (redistribute it at the end of the stage)");
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
