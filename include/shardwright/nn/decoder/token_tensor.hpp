// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Token ids and targets whose order along the sequence is part of their type, with the resulting
/// positions.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Of each place of a rank's sequences, [batch, sequence]: its position in the text. None if places
/// are positions.
using TextOrder = std::shared_ptr<const std::vector<std::int32_t>>;

/// @brief The positions held by the ranks along a sequence's axis, with the order as a type.
template <TokenOrder Order> class TokenPositions {
public:
  using order = Order;

  /// @brief For rank `rank` of `ranks`.
  /// @throws InvalidArgument if the sequence does not divide as the order requires.
  /// @param text order of the rank's sequences, from arranged tokens
  TokenPositions(std::int64_t sequence, int ranks, int rank, TextOrder text = {})
      : sequence_(sequence), ranks_(ranks), rank_(rank), text_(std::move(text)) {
    const std::int64_t divisor = Order::divisor(ranks);
    if (sequence % divisor != 0)
      throw InvalidArgument(std::string(Order::name) + ": the sequence " + std::to_string(sequence) +
                            " must be a multiple of " + std::to_string(divisor) +
                            ", two chunks for each of " + std::to_string(ranks) +
                            " context ranks (change the sequence length, or use fewer context ranks)");
  }

  [[nodiscard]] std::int64_t sequence() const noexcept { return sequence_; } ///< Tokens of a whole sequence.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }                ///< Ranks that share a sequence.
  [[nodiscard]] int rank() const noexcept { return rank_; }                  ///< This rank among them.
  /// @brief Positions of this rank's rows; with a text(), their places in it.
  [[nodiscard]] TokenRuns runs() const { return runs_of(rank_); }
  /// @brief Positions of the rows of whole sequences, as gathered from the ranks.
  [[nodiscard]] RowOrder row_order() const {
    RowOrder out = Order::rows(sequence_, ranks_);
    out.text = text();
    return out;
  }
  /// @brief The position of each place, [batch, sequence], or null if places are positions.
  [[nodiscard]] const std::int32_t* text() const noexcept { return text_ ? text_->data() : nullptr; }
  /// @brief As runs(), of another rank.
  [[nodiscard]] TokenRuns runs_of(int rank) const { return Order::runs(sequence_, ranks_, rank); }

private:
  std::int64_t sequence_;
  int ranks_;
  int rank_;
  TextOrder text_;
};

namespace detail {

/// The trace shows both orders.
template <class Have, class Wanted> struct OneTokenOrder {
  static_assert(
      std::is_same_v<Have, Wanted>,
      "TokenTensor: ids, targets and attention must have the tokens in the same order, NaturalOrder for AllToAllContext and ZigZagOrder for RingContext (make the batch as the model's Ids, and fill it by their positions())");
};

/// Ranks that share dimension 1 of a tensor, and this rank's index among them.
template <class Tensor> [[nodiscard]] std::pair<int, int> sequence_ranks(const Tensor& tensor) {
  constexpr LayoutValue layout = Tensor::layout::value;
  static_assert(layout.shard(1).size() <= 1,
                "TokenTensor: the sequence must be sharded over at most one axis (shard it over cp)");
  if constexpr (layout.shard(1).size() == 1) {
    const AxisBinding binding = bind_axes(tensor.core(), Tensor::layout::axes);
    const auto axis = static_cast<std::size_t>(layout.shard(1)[0]);
    return {binding.extents[axis], binding.coordinates[axis]};
  } else {
    return {1, 0};
  }
}

/// Rejects an order that is no permutation of each sequence, or whose positions descend on a rank.
template <class Positions>
void require_order(const std::vector<std::int32_t>& text, const Positions& places, std::int64_t sequences) {
  const auto sequence = static_cast<std::size_t>(places.sequence());
  const auto reject = [&](const std::string& found) {
    throw InvalidArgument("TokenTensor: an order must hold each position of each of the " +
                          std::to_string(sequences) + " sequences of " + std::to_string(sequence) +
                          " tokens once, and ascend with the rows of each rank, but " + found +
                          " (take it from order_of_documents)");
  };
  if (text.size() != sequence * static_cast<std::size_t>(sequences))
    reject("it has " + std::to_string(text.size()) + " places");
  for (std::size_t first = 0; first < text.size(); first += sequence) {
    std::vector<bool> found(sequence);
    for (int rank = 0; rank < places.ranks(); ++rank) {
      const TokenRuns runs = places.runs_of(rank);
      std::int32_t last = -1;
      for (std::size_t row = 0; row < runs.rows; ++row) {
        const std::size_t place = runs.position(row);
        const std::int32_t position = text[first + place];
        const auto at = static_cast<std::size_t>(position);
        if (position <= last || at >= sequence || found[at])
          reject("place " + std::to_string(place) + " has position " + std::to_string(position));
        found[at] = true;
        last = position;
      }
    }
  }
}

} // namespace detail

/// @brief Token ids or targets, [batch, sequence], whose rows of a sequence are in `Order`.
///
/// A sharded tensor that does not convert to another order: its readers, above all attention, know each row's
/// position from the type.
template <TokenOrder Order, LayoutType L, class Element = std::int32_t, class Target = DefaultTarget>
class TokenTensor : public ShardedTensor<L, Element, Target> {
  using Base = ShardedTensor<L, Element, Target>;

public:
  using order = Order;
  using Handle = TokenTensor<Order, L, const typename Base::value_type, Target>;

  /// @brief An uninitialised tensor of `shape`.
  /// @throws InvalidArgument if the sequence does not divide as the order requires.
  template <class... Axes>
  requires(!Base::read_only) TokenTensor(const DeviceMesh<Axes...>& mesh, const detail::GivenShape<L>& shape,
                                         SourceLocation where = SourceLocation::current())
      : Base(mesh, shape, where) {
    static_cast<void>(positions());
  }
  /// @brief Wraps a tensor whose rows are known to be in this order.
  explicit TokenTensor(Base&& tokens) : Base(std::move(tokens)) {}
  /// @brief Rejects another order, with an error sentence.
  template <class Other, LayoutType From, class E>
  requires(!std::is_same_v<Other, Order>) TokenTensor(const TokenTensor<Other, From, E, Target>& from)
      : Base(detail::TensorAccess::adopt<Base>(from)) {
    static_assert(sizeof(detail::OneTokenOrder<Other, Order>) != 0);
  }

  /// @brief A read-only handle to the same memory.
  [[nodiscard]] Handle share() const {
    Handle out(Base::share());
    out.text_ = text_;
    return out;
  }
  /// @brief Positions of this rank's rows.
  [[nodiscard]] TokenPositions<Order> positions() const {
    const auto [ranks, rank] = detail::sequence_ranks(static_cast<const Base&>(*this));
    return {Base::shape()[1], ranks, rank, text_};
  }
  /// @brief Lays the tokens out in another order than that of chunks, before they are loaded. Ids, targets
  /// and every rank must be given the same.
  /// @param text of this rank's sequences; see order_of_documents()
  /// @throws InvalidArgument unless each sequence is a permutation whose positions ascend with the rows of
  /// each rank.
  void arrange(TextOrder text) requires(std::is_same_v<Order, ZigZagOrder>&& Target::host_accessible) {
    if (text)
      detail::require_order(*text, positions(), Base::local_shape()[0]);
    text_ = std::move(text);
  }
  /// @brief Positions of the rows of whole sequences, for a tape of this batch.
  [[nodiscard]] RowOrder row_order() const { return positions().row_order(); }

private:
  template <TokenOrder, LayoutType, class, class> friend class TokenTensor;
  TextOrder text_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
