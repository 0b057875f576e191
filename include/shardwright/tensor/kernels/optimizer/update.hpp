// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common parts of the optimizers' kernels: many parameters in one launch, with learning rate,
/// clipping factor and verdict read from device memory.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/parts.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The values that change from step to step; a device's are in memory that its kernels read.
struct OptimizerStep {
  double learning_rate = 0;
  double rate_factor = 1; ///< Of a parameter, whose own rate is the product.
  std::int64_t step = 0;  ///< Updates so far.
  std::int32_t take = 0;  ///< Whether the update changes anything.
  double scale = 0;       ///< Factor on the gradient.
  // Of AdamW: 1 - beta1^step, and 1 / sqrt(1 - beta2^step).
  double bias = 0;
  double spread = 0;
};

/// @brief Begins the next step, or leaves everything unchanged.
struct OpenOptimizerStep {
  OptimizerStep* to;

  SHARDWRIGHT_FUNCTION void open(bool take, double gradient_scale) const {
    to->take = take ? 1 : 0;
    if (!take)
      return;
    ++to->step;
    to->scale = gradient_scale;
  }
};

namespace detail {

/// An update that reads its varying values from device memory; does nothing if the step is not taken.
/// `Update` is an elementwise functor that returns the updated parameter, and has `set_step(step, rate,
/// weight_decay)`. `Rounded` is the element type of a rounded copy that is stored too; if it is that of the
/// parameter, there is no copy.
template <class Update, class Rounded> struct UpdateOnDevice {
  using Element = typename Update::element;
  static constexpr bool rounds = !std::is_same_v<Element, Rounded>;
  Update update;
  const OptimizerStep* step;
  Rounded* rounded;
  double weight_decay;

  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    if (step->take == 0)
      return;
    Update now = update;
    now.set_step(*step, step->learning_rate, weight_decay);
    const Lanes<Element> parameter = now(chunk, i);
    if constexpr (rounds)
      chunk.store(rounded + i, parameter);
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    if constexpr (rounds)
      update.with_memory([&](const auto*... memory) { use(memory..., rounded); });
    else
      update.with_memory(use);
  }
};

/// The elements of a view of `size`, the parameter's.
template <class Element, KernelView View>
[[nodiscard]] Element* related(const char* operation, const View& view, std::size_t size) {
  static_assert(
      std::is_same_v<std::remove_const_t<Element>, typename View::non_const_value_type>,
      "optimizer: parameter, gradient and moments must have the same element type (convert one first)");
  const auto all = flat_span_of(view, operation);
  require(all.size == size, operation, "parameter, gradient and moments must have the same size.");
  return all.data;
}

} // namespace detail

/// @brief Updates as many parameters per launch as fit; does nothing if the step is not taken.
///
/// Cost: that of the updates, and one write for each rounded copy.
template <class Execution, class Update, class Rounded> class OptimizerLaunches {
  using Part = detail::RowPieces<
      detail::Elementwise<typename Update::element, detail::UpdateOnDevice<Update, Rounded>>>;

public:
  /// @param label of the launches, below 16 characters
  OptimizerLaunches(const char* label, const Execution& execution) : launcher_(label, execution) {}

  /// @brief Adds a parameter of `size` elements, whose memory must stay until the launch.
  /// @param rounded destination of the rounded copy of the updated parameter; null if `Rounded` is its
  /// element type
  /// @param step the parameter's own, with its learning rate
  void add(const Update& update, std::size_t size, Rounded* rounded, double weight_decay,
           const OptimizerStep* step) {
    const std::size_t grain = lane_grain_of<Execution>(4096);
    const std::size_t pieces = blocks_of(size, grain);
    launcher_.add(Part{{{update, step, rounded, weight_decay}}, size, grain, pieces}, pieces);
  }
  /// @brief Launches the updates that were added.
  void launch() { launcher_.launch(); }

private:
  PartLauncher<Execution, Part> launcher_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
