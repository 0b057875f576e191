// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dropout whose mask is a function of the element's position in the training run, and is never
/// stored.

#include <shardwright/core/philox.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/batch_origin.hpp>
#include <shardwright/train/operation_node.hpp>
#include <shardwright/train/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One use of dropout: its random stream and rate.
struct DropoutUse {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0; ///< Number of the use in the model, different from that of any parameter.
  double rate = 0;          ///< Share of elements that become zero, in [0, 1).

  /// @brief Step and tensor select the stream; step 0 shares its numbers with the parameter of the same
  /// number.
  [[nodiscard]] constexpr RandomKey key(const BatchOrigin& origin) const noexcept {
    return {seed, origin.step << 32 | tensor};
  }
};

namespace detail {

/// The block's position in [sequences of the global batch, position, column].
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

namespace operation {

/// @brief Dropout with its gradient, which is the same mask and factor; in place if the operand's memory is
/// not shared.
struct Dropout {
  static constexpr std::string_view name = "dropout";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  DropoutUse use;
  BatchOrigin origin;
  TokenRuns runs;

  template <AnyShardedTensor X>
  [[nodiscard]] auto forward(SourceLocation, X&& x) const {
    using L = typename std::remove_cvref_t<X>::layout;
    static_assert(
        !L::value.has_partial(),
        "dropout: the tensor must not be Partial, an incomplete sum whose summands would be dropped independently (redistribute it first)");
    static_assert(
        !detail::has_halos<L>,
        "dropout: the tensor must have no halos, whose copies would get different masks (redistribute it to WithoutHalos of its layout)");
    const auto from = x.local();
    auto out = detail::reuse(std::forward<X>(x)).out;
    kernels::dropout_into(out.execution(), from, out.mutable_local(),
                          detail::position_in_step(out, origin, runs), use.key(origin), use.rate);
    return out;
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& gradient, const X&, const Y&) const {
    return forward({}, std::forward<G>(gradient));
  }
};

} // namespace operation

/// @brief Each element of `x` becomes 0 with probability `rate`, else x / (1 - rate) (Srivastava et al.,
/// 2014, scaled in training).
///
/// The mask depends only on seed, tensor, step and the element's [sequence of the batch, position, column],
/// not on the layout, on how the batch is divided, or on how often it is computed.
/// @param runs positions of this context rank's rows, if they differ from those of the layout
template <AnyShardedTensor X>
[[nodiscard]] auto dropout(const X& x, const DropoutUse& use, const BatchOrigin& origin,
                           const TokenRuns& runs = {}) {
  const auto handle = x.share(); // kept, so that the result has its own memory
  return operation::Dropout{use, origin, runs}.forward({}, handle);
}
/// @brief The same on a tape, which knows the origin and the positions; in an evaluation `x` itself.
/// @throws LifecycleError in training on a tape without an origin, since every step would drop the same
/// elements.
template <detail::TapeOperand X>
[[nodiscard]] auto dropout(X&& x, const DropoutUse& use, SourceLocation where = SourceLocation::current()) {
  const detail::TapeCore& tape = x.tape();
  if (use.rate == 0 || !(tape.trains() || tape.counts_ahead()))
    return as_var(std::forward<X>(x), where);
  if (!tape.origin())
    throw LifecycleError(
        "dropout: a tape in training must know the position of its microbatch in the run, which keys the masks (pass restart() a BatchOrigin of step and first sequence, or give the batch of a stage a member `origin`)",
        {.rank = x.resources().core().world().rank(), .where = where});
  return apply(operation::Dropout{use, *tape.origin(), tape.runs()}, where, std::forward<X>(x));
}
/// @brief Rejects a rate without a position in the model, with an error sentence.
template <Operand X>
void dropout(X&&, double) {
  static_assert(
      sizeof(X) == 0,
      "dropout: it must know its place in the model, which keys its mask (use the module Dropout, or pass a DropoutUse with a number of its own)");
}

/// @brief Dropout as a module; its position in the model keys its masks.
class Dropout final : public NamedPart {
public:
  /// @param tensor a number of the program's choice, different from that of any parameter; by default derived
  /// from the path
  explicit Dropout(double rate, std::optional<std::uint32_t> tensor = {}) : tensor_(tensor) {
    use_.rate = rate;
  }

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) const {
    if (use_.rate > 0 && !named_)
      throw LifecycleError(
          "Dropout: it must have a place in the model before it is used (list it in members(), and call initialize() with the whole model)");
    return dropout(std::forward<X>(x), use_, where);
  }
  /// @brief Sets its position in the model; called by initialize().
  void initialize(const std::string& path, std::uint64_t seed) override {
    use_.seed = seed;
    use_.tensor = tensor_.value_or(static_cast<std::uint32_t>(detail::key_of(path)));
    named_ = true;
  }

private:
  DropoutUse use_;
  std::optional<std::uint32_t> tensor_;
  bool named_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
