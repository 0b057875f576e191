// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dropout whose mask is a function of the element's place in the training run, and is never stored.

#include <shardwright/core/philox.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Where a microbatch stands in a training run: what its random numbers are keyed by.
struct BatchOrigin {
  std::uint64_t step = 0;           ///< Optimizer step.
  std::uint64_t first_sequence = 0; ///< Place of its first sequence in the step's global batch.
};

/// @brief One use of dropout: which numbers, and how many elements are dropped.
struct DropoutUse {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0; ///< Number of the place in the model, different from that of any parameter.
  double rate = 0;          ///< Share of the elements that becomes zero, in [0, 1).

  /// @brief Step and tensor make the stream; step 0 shares its numbers with a parameter of that number.
  [[nodiscard]] constexpr RandomKey key(const BatchOrigin& origin) const noexcept {
    return {seed, origin.step << 32 | tensor};
  }
};

namespace detail {

/// The block's place in [sequences of the global batch, position, column].
template <class Tensor>
[[nodiscard]] kernels::BlockPosition position_in_step(const Tensor& tensor, const BatchOrigin& origin,
                                                      const TokenRuns& runs) {
  kernels::BlockPosition position = position_of(tensor);
  const auto first = static_cast<std::size_t>(origin.first_sequence);
  position.offset[0] += first;
  position.global[0] += first;
  if (runs.rows > 0) {
    // The rows of a context rank may be split once more, evenly.
    const std::size_t row = position.offset[1] % runs.rows;
    position.offset[1] = runs.position(row);
    if (row < runs.split) {
      position.split = runs.split - row;
      position.jump = runs.second - (runs.first + runs.split);
    }
  }
  return position;
}

} // namespace detail

/// @brief Each element of `x` becomes 0 with probability `rate`, else x / (1 - rate), in place (Srivastava et
/// al., 2014, scaled in training).
///
/// The mask depends on seed, tensor, step and the element's [sequence of the global batch, position, column]
/// alone: neither on the layout, nor on how the batch is divided, nor on how often it is computed.
/// @param runs positions of the rows of this context rank, where they are not those that the layout gives
template <LayoutType L, class Element, class Target>
void dropout(ShardedTensor<L, Element, Target>& x, const DropoutUse& use, const BatchOrigin& origin,
             const TokenRuns& runs = {}) {
  static_assert(
      !L::value.has_partial(),
      "dropout: the tensor must not be Partial, an unfinished sum whose parts would be dropped apart (redistribute it first)");
  if (use.rate > 0)
    kernels::dropout(x.execution(), x.mutable_local(), detail::position_in_step(x, origin, runs),
                     use.key(origin), use.rate);
}

/// @brief The gradient of dropout's input from that of its output: the same mask and factor. A handle of
/// `gradient` where nothing is dropped.
template <LayoutType L, class E, class Target>
[[nodiscard]] ShardedTensor<L, const std::remove_const_t<E>, Target>
dropout_gradient(const ShardedTensor<L, E, Target>& gradient, const DropoutUse& use,
                 const BatchOrigin& origin, const TokenRuns& runs = {}) {
  if (use.rate == 0)
    return gradient.share();
  ShardedTensor<L, std::remove_const_t<E>, Target> out(gradient.resources(), gradient.shape());
  kernels::dropout_into(gradient.execution(), gradient.local(), out.mutable_local(),
                        detail::position_in_step(gradient, origin, runs), use.key(origin), use.rate);
  return out.share();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
