// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dropout whose mask is a function of the element's position in the training run, and is never
/// stored.

#include <shardwright/core/hash.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One use of dropout: its random stream and rate.
struct DropoutUse {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0; ///< Number of the use in the model, different from that of any parameter.
  double rate = 0;          ///< Share of elements that become zero, in [0, 1).
  std::uint32_t call = 0;   ///< Number of the call in a pass, if the same use is called several times.

  /// @brief Step, tensor and call select the stream; step 0 shares its numbers with the parameter of the same
  /// number.
  [[nodiscard]] constexpr RandomKey key(const BatchOrigin& origin) const noexcept {
    const auto number = call == 0 ? tensor : static_cast<std::uint32_t>(detail::mixed(tensor, call));
    return {seed, origin.step << 32 | number};
  }
};

namespace detail {

/// The block's position in the tensor of the whole step. Its rows are sequences, or as many tokens of each.
template <class Tensor>
[[nodiscard]] kernels::BlockPosition position_in_step(const Tensor& tensor, const BatchOrigin& origin,
                                                      const RowOrder& order, SourceLocation where) {
  constexpr std::size_t dimensions = Tensor::tensor_rank;
  kernels::BlockPosition position = position_of(tensor);
  if (tensor.size() == 0)
    return position;
  const bool known = origin.sequences > 0;
  if (dimensions < 3 && !known && (origin.first_sequence > 0 || !order.is_natural()))
    reject_operation(
        "dropout",
        "the number of sequences of the microbatch must be known for a tensor of fewer than three dimensions, whose rows may be tokens, but it is 0 for the microbatch at sequence " +
            std::to_string(origin.first_sequence) +
            " (give its BatchOrigin `sequences`, or the batch of a stage a function sequences())",
        tensor.core(), where);
  const auto extent = [&tensor](std::size_t d) { return static_cast<std::size_t>(tensor.shape()[d]); };
  const std::uint64_t of_sequence = !known                              ? 1
                                    : extent(0) % origin.sequences == 0 ? extent(0) / origin.sequences
                                                                        : extent(0);
  position.offset[0] += origin.first_sequence * of_sequence;
  position.global[0] += origin.first_sequence * of_sequence;
  if (order.is_natural())
    return position;
  if (order.text != nullptr)
    reject_operation(
        "dropout",
        "the tokens must be in chunks of the sequence, as masks are keyed by positions, but documents are arranged over the ranks (do not arrange() the tokens, or take a rate of 0)",
        tensor.core(), where);
  position.order = order;
  const std::size_t second = dimensions > 1 ? extent(1) : 1;
  if (known && of_sequence == order.sequence)
    position.ordered = 0;
  else if (dimensions > 2 && of_sequence == 1 && second == order.sequence)
    position.ordered = 1;
  else if (dimensions == 2 && of_sequence == 1 && second == order.sequence)
    reject_operation(
        "dropout",
        "a tensor of two dimensions must hold columns in the second one, but the " + std::to_string(second) +
            " of this one may be the positions of a sequence in ZigZagOrder (reshape it to [sequences, 1, columns] or [sequences, positions, 1])",
        tensor.core(), where);
  else if (!known || of_sequence != 1 || (dimensions > 2 && second != 1))
    reject_operation(
        "dropout",
        "a tensor must have the batch's sequences of " + std::to_string(order.sequence) +
            " tokens, whose order over the ranks is not that of the text, or one row for each sequence, but it has the shape " +
            text_of(tensor.shape()) +
            (known ? " for " + std::to_string(origin.sequences) + " sequences" : "") +
            " (drop before the stream is made longer or shorter, or use NaturalOrder)",
        tensor.core(), where);
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
  static constexpr std::array<std::string_view, 0> differs_along{};
  DropoutUse use;
  BatchOrigin origin;
  RowOrder rows;

  [[nodiscard]] std::array<GivenNumber, 4> numbers() const {
    return {GivenNumber("seed", use.seed), GivenNumber("number of the use", use.tensor),
            GivenNumber("rate", use.rate), GivenNumber("step", origin.step)};
  }

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using L = typename std::remove_cvref_t<X>::layout;
    static_assert(
        !L::value.has_partial(),
        "dropout: the tensor must not be Partial, an incomplete sum whose summands would be dropped independently (redistribute it first)");
    static_assert(
        !detail::has_halos<L>,
        "dropout: the tensor must have no halos, whose copies would get different masks (redistribute it to WithoutHalos of its layout)");
    const auto from = x.local();
    auto out = reuse(std::forward<X>(x)).out;
    kernels::dropout_into(out.execution(), from, out.mutable_local(),
                          detail::position_in_step(out, origin, rows, where), use.key(origin), use.rate);
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
/// The mask depends only on seed, tensor, call, step and the element's index in the tensor of the whole step,
/// [sequence, position, column] or [token, column], not on the layout, on how the batch is divided, or on how
/// often it is computed. In every layout the first dimension holds the microbatch's sequences, or an equal
/// number of rows of each.
/// @param rows positions of the rows of the batch's sequences, if they are not those of the text
/// @throws InvalidArgument if the number of sequences is unknown where rows may be tokens, or if the tokens
/// are in another order than that of the text, and the shape does not say where they are.
template <AnyShardedTensor X>
[[nodiscard]] auto dropout(const X& x, const DropoutUse& use, const BatchOrigin& origin,
                           const RowOrder& rows = {}, SourceLocation where = SourceLocation::current()) {
  const auto handle = x.share(); // kept, so that the result has its own memory
  return operation::Dropout{use, origin, rows}.forward(where, handle);
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
        "dropout: a tape in training must know the position of its microbatch in the run, which keys the masks (pass restart() a BatchOrigin of step, first sequence and number of sequences, or give the batch of a stage a member `origin` and a function sequences())",
        {.rank = x.resources().core().world().rank(), .where = where});
  return apply(operation::Dropout{use, *tape.origin(), tape.rows()}, where, std::forward<X>(x));
}
/// @brief Rejects a rate without a position in the model, with an error sentence.
template <Operand X> void dropout(X&&, double) {
  static_assert(
      sizeof(X) == 0,
      "dropout: it must know its place in the model, which keys its mask (use the module Dropout, or pass a DropoutUse with a number of its own)");
}

/// @brief Dropout as a module; its position in the model keys its masks, which differ between the calls of a
/// pass.
class Dropout final : public NamedPart {
public:
  /// @param tensor a number of the program's choice, different from that of any parameter; by default derived
  /// from the path
  explicit Dropout(double rate, std::optional<std::uint32_t> tensor = {}) : tensor_(tensor) {
    use_.rate = rate;
  }

  /// @brief dropout() of x, of any shape. @throws what it does, and LifecycleError before initialize().
  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) const {
    if (use_.rate > 0 && !named_)
      throw LifecycleError(
          "Dropout: it must have a place in the model before it is used (list it in members(), and call initialize() with the whole model)");
    DropoutUse use = use_;
    use.call = x.tape().next_call_of(this);
    return dropout(std::forward<X>(x), use, where);
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
