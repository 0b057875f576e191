// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Learned position embedding: adds the table row of each token's position.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/kernels/ordered/layer_gradients.hpp>
#include <shardwright/tensor/kernels/positions.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/train/members.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// [positions, width] for a stream [batch, sequence, width]: the width sharded as in the stream.
template <LayoutType Stream> struct PositionTableHolder {
  static constexpr LayoutValue value = [] {
    LayoutValue out;
    out.tensor_rank = 2;
    out.shard(1) = Stream::value.shard(2);
    return out;
  }();
};
/// A sum over tokens.
template <LayoutType Gradient> struct PositionGradientHolder {
  static constexpr LayoutValue value = [] {
    LayoutValue out = PositionTableHolder<Gradient>::value;
    for (int d = 0; d < 2; ++d)
      for (const int axis : Gradient::value.shard(d))
        out.set_partial(axis, ReduceOp::sum);
    return out;
  }();
};

template <class X, class Table> struct PositionOperands {
  static constexpr bool ranks = X::tensor_rank == 3 && Table::tensor_rank == 2;
  static_assert(
      ranks || any_invalid<typename X::layout>,
      "add_positions: the stream must be [batch, sequence, width], and the table [positions, width] (reshape first)");
  static constexpr bool whole = [] {
    if constexpr (ranks)
      return Table::layout::value.shard(0).empty();
    else
      return true;
  }();
  static_assert(
      whole,
      "add_positions: the positions of the table must not be sharded (redistribute it, or shard its width)");
  static constexpr bool no_halos = !has_halos<typename X::layout> && !has_halos<typename Table::layout>;
  static_assert(
      no_halos,
      "add_positions: neither tensor may have halos (redistribute it to WithoutHalos of its layout)");
  static constexpr bool value = ranks && whole && no_halos && SameElementAndTarget<X, Table>::value;
};

/// The layout of the sum, with the error sentences of a sum.
template <class X, class Table>
using WithPositions = AddLayout<typename X::layout, ReductionLayout<Sum, 0, typename Table::layout>>;

/// Positions of the block's rows: its offset in whole sequences follows from the layout.
template <class X> [[nodiscard]] kernels::RowPositions row_positions(const X& x, const RowOrder& order) {
  return {static_cast<std::size_t>(x.local_offset()[1]), order};
}

} // namespace detail

/// @brief Layout of a table of positions for a stream [batch, sequence, width]: its width is sharded like the
/// stream's.
template <LayoutType Stream>
using PositionTableLayout = detail::LayoutOf<typename Stream::axis_list, detail::PositionTableHolder<Stream>>;

/// @brief Layout of that table's gradient, given that of the stream's gradient: Partial<Sum> over the axes
/// that shard tokens.
template <LayoutType StreamGradient>
using PositionGradientLayout =
    detail::LayoutOf<typename StreamGradient::axis_list, detail::PositionGradientHolder<StreamGradient>>;

namespace operation {

/// @brief x + table[position] with its gradients: that of the result, summed over the sequences for the
/// table.
struct AddPositions {
  static constexpr std::string_view name = "add_positions";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
  RowOrder order;

  template <AnyShardedTensor X, AnyShardedTensor Table>
  [[nodiscard]] auto forward(SourceLocation where, X&& x, const Table& table) const {
    using Input = std::remove_cvref_t<X>;
    if constexpr (!detail::PositionOperands<Input, Table>::value) {
      return ShardedTensor<InvalidLayout, typename Input::value_type, typename Input::target>(x.resources(),
                                                                                              {}, where);
    } else if constexpr (detail::any_invalid<detail::WithPositions<Input, Table>>) {
      return ShardedTensor<InvalidLayout, typename Input::value_type, typename Input::target>(x.resources(),
                                                                                              {}, where);
    } else {
      detail::require_one_mesh("add_positions", x, table, where);
      detail::require_equal_extents("add_positions",
                                    "the last extent of the table must be that of the stream", x.shape(), 2,
                                    table.shape(), 1, 1, x.core(), where);
      if (table.shape()[0] < x.shape()[1])
        detail::reject_operation(
            "add_positions",
            "the table must have a row for each position of a sequence, but the shapes are " +
                detail::text_of(x.shape()) + " and " + detail::text_of(table.shape()) +
                " (make the table longer, or the sequences shorter)",
            x.core(), where);
      if (!order.is_natural() && x.shape()[1] != static_cast<std::int64_t>(order.sequence))
        detail::reject_operation(
            "add_positions",
            "the stream must have the batch's sequences of " + std::to_string(order.sequence) +
                " tokens, whose order over the ranks is not that of the text, but it has sequences of " +
                std::to_string(x.shape()[1]) +
                " (add the positions before the stream is made longer or shorter, or use NaturalOrder)",
            x.core(), where);
      if (order.text != nullptr)
        detail::reject_operation("add_positions",
                                 "the tokens must be in chunks of the sequence, but documents are arranged "
                                 "over the ranks (do not arrange() the tokens)",
                                 x.core(), where);
      const auto rows = static_cast<std::size_t>(x.local_shape()[1]);
      const kernels::RowPositions positions = detail::row_positions(x, order);
      const auto from = x.local_matrix();
      auto out = reuse(std::forward<X>(x)).out;
      if (out.local_size() > 0)
        kernels::add_positions(out.execution(), from, table.local_matrix(), rows, positions,
                               out.mutable_local_matrix());
      return out;
    }
  }
  template <class G, class X, class Table>
  [[nodiscard]] G left_gradient(G y_gradient, const X&, const Table&) const {
    return y_gradient;
  }
  template <class G, class X, class Table>
  [[nodiscard]] ShardedTensor<PositionGradientLayout<typename G::layout>, typename Table::value_type,
                              typename Table::target>
  right_gradient(const G& y_gradient, const X&, const Table& table) const {
    static_cast<void>(detail::TermsOfParameter<typename G::target>::value);
    ShardedTensor<PositionGradientLayout<typename G::layout>, typename Table::value_type,
                  typename Table::target>
        out(y_gradient.resources(), table.shape());
    add_to(out, y_gradient, false);
    return out;
  }
  template <class Slot, class G, class X>
  requires std::is_same_v<typename detail::SlotTensor<Slot>::layout,
                          PositionGradientLayout<typename G::layout>>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const X&) const {
    if constexpr (is_reproducible<typename G::target>)
      add_to(slot.tensor, y_gradient, slot.beta != 0, slot.fault);
    else
      add_to(slot.tensor, y_gradient, slot.beta != 0);
  }

private:
  template <class Out, class G, class... Fault>
  void add_to(Out& out, const G& y_gradient, bool add, Fault... fault) const {
    kernels::add_positions_backward(
        out.execution(), y_gradient.local_matrix(), static_cast<std::size_t>(y_gradient.local_shape()[1]),
        detail::row_positions(y_gradient, order), out.mutable_local_matrix(), add, fault...);
  }
};

} // namespace operation

/// @brief out[b, s, :] = x[b, s, :] + table[position of s, :] (learned positions, Gehring et al., arXiv
/// 1705.03122).
///
/// No communication. The table's gradient is Partial<Sum> over the axes that shard batch and sequence.
/// @param x [batch, sequence, width], not Partial
/// @param table [positions, width], width sharded as that of x
/// @param order positions of the rows of whole sequences, if they are not those of the text
/// @throws InvalidArgument if the table has fewer rows than a sequence has positions, the widths differ, or
/// the stream's sequences are not those that have the order.
template <AnyShardedTensor X, AnyShardedTensor Table>
[[nodiscard]] auto add_positions(const X& x, const Table& table, const RowOrder& order = {},
                                 SourceLocation where = SourceLocation::current()) {
  return operation::AddPositions{order}.forward(where, x, table);
}
/// @brief The same on a tape, which provides the positions; the table may be a parameter.
template <detail::TapeOperand X, detail::TapeOperand Table>
[[nodiscard]] auto add_positions(X&& x, Table&& table, SourceLocation where = SourceLocation::current()) {
  const operation::AddPositions addition{x.tape().rows()};
  return apply(addition, where, std::forward<X>(x), std::forward<Table>(table));
}

/// @brief A trained row for each position, added to a stream in layout `In`, [batch, sequence, width].
///
/// Positions follow from the layout of the stream and the row order of the tape's batch, so ranks that share
/// a sequence each add their own.
template <LayoutType In, class Plan = ModelPlan<>> class PositionEmbedding {
public:
  using Table = Parameter<PositionTableLayout<In>, PositionGradientLayout<Gradient<In>>,
                          typename Plan::element, typename Plan::zero, typename Plan::target>;

  /// @param positions maximum number of tokens in a sequence
  template <class Mesh>
  PositionEmbedding(const Mesh& mesh, std::int64_t positions, std::int64_t width, const Initial& initial,
                    SourceLocation where = SourceLocation::current())
      : table_(mesh, {positions, width}, initial, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, In>::value);
    return add_positions(std::forward<X>(x), table_, where);
  }
  [[nodiscard]] Table& table() noexcept { return table_; }
  [[nodiscard]] auto members() { return shardwright::members("", table_); }

private:
  Table table_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
