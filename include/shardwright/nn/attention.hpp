// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rotary embedding and grouped-query attention on sharded tensors, split by key and value heads.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/nn/attention/mask.hpp>
#include <shardwright/nn/attention/rotary_table.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout after attention over [batch, sequence, kv_heads, (queries + 2) * head width]: [batch,
/// sequence, width].
template <LayoutType Qkv>
using AttentionLayout = ReductionLayout<Sum, 3, ElementwiseNonlinearLayout<operation::attention, Qkv>>;

/// @brief Query heads that share a key and value head, and the elements of one head.
struct HeadShape {
  std::int64_t queries = 1;
  std::int64_t width = 0;
  std::int64_t value_width = 0;  ///< Elements of a value; 0 means as many as in a query or key.
  std::int64_t rotary_width = 0; ///< Elements at the end of a query or key that are rotated; 0 means all.
  double score_factor = 1;       ///< Factor on all scores, in addition to 1 / sqrt(width).

  /// @brief Elements of a value.
  [[nodiscard]] constexpr std::int64_t of_value() const noexcept {
    return value_width == 0 ? width : value_width;
  }
  /// @brief Elements of a group: its queries, its key and its value.
  [[nodiscard]] constexpr std::int64_t of_group() const noexcept {
    return (queries + 1) * width + of_value();
  }
  /// @brief The numbers that all ranks must give alike.
  [[nodiscard]] std::array<GivenNumber, 5> numbers() const {
    return {GivenNumber("number of queries for each key", queries), GivenNumber("width of a head", width),
            GivenNumber("width of a value", of_value()), GivenNumber("rotary width", rotary_width),
            GivenNumber("score factor", score_factor)};
  }
};

/// @brief Attention's result, [batch, sequence, heads * head width], and what its gradient needs.
template <LayoutType Qkv, class Element, class Target> struct AttentionOutput {
  ShardedTensor<AttentionLayout<Qkv>, Element, Target> value;
  ShardedTensor<AttentionLayout<Qkv>, AccumulationElement<Element>, Target>
      log_sum_exp; ///< [batch, sequence, heads], in the kernel's order.
};

namespace detail {

template <LayoutType Qkv> struct AttentionCheck {
  static constexpr bool fits = Qkv::tensor_rank == 4 || any_invalid<Qkv>;
  static_assert(
      fits,
      "attention: the fused input must be [batch, sequence, kv_heads, (queries + 2) * head width] (reshape it)");
  static_assert(!fits || Qkv::value.shard(3).empty(),
                "attention: the elements of a head must not be sharded (shard its heads)");
};

template <LayoutType Qkv> struct WholeSequence {
  static constexpr bool value = Qkv::tensor_rank != 4 || Qkv::value.shard(1).empty();
  static_assert(
      value,
      "attention: a sharded sequence must come with its positions (redistribute the input, and shard its heads, or pass the positions() of the token ids)");
};

/// Whether attention over a layout accepts tokens in an order.
template <LayoutType Qkv, class Order> struct AttentionOrder {
  static constexpr bool sharded = Qkv::tensor_rank == 4 && !Qkv::value.shard(1).empty();
  static_assert(
      sharded || std::is_same_v<Order, NaturalOrder>,
      "attention: whole sequences, as in all-to-all, must be in NaturalOrder (make the batch with AllToAllContext, or keep the sequence sharded with RingContext)");
  static_assert(
      !sharded || std::is_same_v<Order, ZigZagOrder>,
      "attention: a sharded sequence, as in the ring, must be in ZigZagOrder (make the batch with RingContext, or redistribute the input to shard its heads with AllToAllContext)");
  static constexpr bool value = std::is_same_v<Order, std::conditional_t<sharded, ZigZagOrder, NaturalOrder>>;
};

/// The sizes of the local block, which must be whole groups of heads: the attended values are split like
/// them.
template <class Tensor>
[[nodiscard]] kernels::AttentionShape local_attention_shape(const Tensor& qkv, HeadShape heads,
                                                            SourceLocation where) {
  (void)AttentionCheck<typename Tensor::layout>{};
  const auto& local = qkv.local_shape();
  const std::int64_t fused = heads.of_group();
  if (qkv.shape()[3] != fused) {
    reject_operation("attention",
                     "the last extent must be " +
                         std::string(heads.value_width == 0 ? "(queries + 2) * head width"
                                                            : "(queries + 1) * head width + value width") +
                         " = " + std::to_string(fused) + ", but it is " + std::to_string(qkv.shape()[3]) +
                         " (lay the queries, the key and the value of a group side by side)",
                     qkv.core(), where);
  }
  std::int64_t ranks = 1;
  for (const int axis : Tensor::layout::value.shard(2))
    ranks *= bind_axes(qkv.core(), Tensor::layout::axes).extents[static_cast<std::size_t>(axis)];
  if (qkv.shape()[2] % ranks != 0) {
    std::string axes;
    for (const int axis : Tensor::layout::value.shard(2))
      axes.append(axes.empty() ? "" : " x ").append(Tensor::layout::axes[static_cast<std::size_t>(axis)]);
    reject_operation(
        "attention",
        "kv_heads " + std::to_string(qkv.shape()[2]) + " must be a multiple of the " + std::to_string(ranks) +
            " ranks of " + axes +
            ", which share them (use fewer ranks on these axes, split one in two, or use RingContext, which does not split the heads over cp)",
        qkv.core(), where);
  }
  const auto size = [](std::int64_t extent) { return static_cast<std::size_t>(extent); };
  return {size(local[0]),    size(local[1]),          size(local[2]),          size(heads.queries),
          size(heads.width), size(heads.value_width), size(heads.rotary_width)};
}

/// The positions must be those of the tensor's sequences and, if only one rank's rows have them, of this
/// rank.
template <class Tensor, class Order>
void require_own_positions(const char* operation, const Tensor& tensor,
                           const TokenPositions<Order>& positions, bool of_rank, SourceLocation where) {
  const auto [ranks, rank] = sequence_ranks(tensor);
  const bool elsewhere = of_rank && (positions.ranks() != ranks || positions.rank() != rank);
  if (positions.sequence() == tensor.shape()[1] && !elsewhere)
    return;
  const auto text = [&](std::int64_t sequence, int of, int which) {
    return std::to_string(sequence) +
           (elsewhere ? " on rank " + std::to_string(which) + " of " + std::to_string(of) : "");
  };
  reject_operation(operation,
                   "the positions must be those of the input's sequence of " +
                       text(tensor.shape()[1], ranks, rank) + ", but they are of " +
                       text(positions.sequence(), positions.ranks(), positions.rank()) +
                       " (take them from the batch's token ids)",
                   tensor.core(), where);
}

/// Positions of this rank's rows of a tensor: in the order of the text they follow from its layout, however
/// the ids are split.
template <class Tensor, class Order>
[[nodiscard]] TokenRuns own_positions(const char* operation, const Tensor& tensor,
                                      const TokenPositions<Order>& positions, SourceLocation where) {
  const bool natural = positions.row_order().is_natural();
  require_own_positions(operation, tensor, positions, !natural, where);
  return natural ? TokenRuns::one(static_cast<std::size_t>(tensor.local_shape()[1]),
                                  static_cast<std::size_t>(tensor.local_offset()[1]))
                 : positions.runs();
}

/// The rotation of a tensor by a table.
template <class Tensor, class Table, class Order>
[[nodiscard]] auto rotation(const char* operation, const Tensor& tensor, const Table& table,
                            const TokenPositions<Order>& positions, SourceLocation where) {
  auto out = table.at(own_positions(operation, tensor, positions, where));
  out.text = positions.text();
  out.places = static_cast<std::size_t>(positions.sequence());
  return out;
}

/// Every row must have a position, and every position a row of the table.
template <class Tensor, class Number>
void require_rows_of_positions(const Tensor& tensor, const kernels::Rotation<Number>& by,
                               SourceLocation where) {
  const auto rows = static_cast<std::size_t>(tensor.local_shape()[1]);
  if (by.positions.rows != rows)
    reject_operation("rotary",
                     "every token of this rank must have a position, but there are " +
                         std::to_string(by.positions.rows) + " positions for " + std::to_string(rows) +
                         " tokens of each sequence (take them from the batch's token ids)",
                     tensor.core(), where);
  if (by.end() > by.cosines.rows)
    reject_operation("rotary",
                     "the table must have a row for each position, but it has " +
                         std::to_string(by.cosines.rows) + ", and the positions need " +
                         std::to_string(by.end()) + " (make a longer RotaryTable)",
                     tensor.core(), where);
}

/// The local block as [tokens, everything else].
template <class Tensor> [[nodiscard]] auto token_rows(const Tensor& tensor) { return matrix_at(tensor, 2); }
template <class Tensor> [[nodiscard]] auto mutable_token_rows(Tensor& tensor) {
  return mutable_matrix_at(tensor, 2);
}

[[nodiscard]] inline double attention_scale(HeadShape heads) {
  return heads.score_factor / std::sqrt(static_cast<double>(heads.width));
}

} // namespace detail

/// @brief Rotates queries and keys, or their ends, by their positions, in place.
/// @param qkv [batch, sequence, kv_heads, (queries + 1) * head width + value width]
/// @param positions positions of this rank's tokens in their sequences
/// @throws InvalidArgument if the last extent is different, or kv_heads is not divisible by its ranks.
template <LayoutType L, class Element, class Target>
void rotate(ShardedTensor<L, Element, Target>& qkv, const RotaryTable<Element, Target>& table,
            const TokenRuns& positions, HeadShape heads, SourceLocation where = SourceLocation::current()) {
  const auto by = table.at(positions);
  detail::require_rows_of_positions(qkv, by, where);
  kernels::rotary_forward(qkv.execution(), detail::mutable_token_rows(qkv), by,
                          detail::local_attention_shape(qkv, heads, where));
}

/// @brief The same for one row of tokens at any positions, as of several sequences side by side. On hosts.
/// @param positions one for each token, each a row of the table
template <LayoutType L, class Element, class Target>
requires(Target::host_accessible) void rotate(ShardedTensor<L, Element, Target>& qkv,
                                              const RotaryTable<Element, Target>& table,
                                              std::span<const std::int32_t> positions, HeadShape heads,
                                              SourceLocation where = SourceLocation::current()) {
  if (qkv.shape()[0] != 1)
    detail::reject_operation("rotary",
                             "positions of tokens must be of one row, but there are " +
                                 std::to_string(qkv.shape()[0]) + " (rotate each row by itself)",
                             qkv.core(), where);
  auto by = table.at(TokenRuns::one(positions.size()));
  by.text = positions.data();
  if (!positions.empty()) {
    const auto [least, most] = std::minmax_element(positions.begin(), positions.end());
    if (*least < 0)
      detail::reject_operation("rotary",
                               "positions must be from 0 on, but one is " + std::to_string(*least) +
                                   " (count the tokens of each sequence from its first one)",
                               qkv.core(), where);
    by.places = 1 + static_cast<std::size_t>(*most);
  }
  detail::require_rows_of_positions(qkv, by, where);
  kernels::rotary_forward(qkv.execution(), detail::mutable_token_rows(qkv), by,
                          detail::local_attention_shape(qkv, heads, where));
}

namespace operation {

/// @brief rotate by the positions of a batch's ids, in place if the memory is not shared. Its gradient is the
/// inverse rotation, times the table's factor again, unless the operation after it has applied that.
template <class Element, class Target, class Order> struct Rotary {
  static constexpr std::string_view name = "rotary";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  static constexpr std::array<std::string_view, 0> differs_along{}; // the same angles on every axis
  const RotaryTable<Element, Target>* table;
  TokenPositions<Order> positions;
  HeadShape heads;
  bool undone_later = false; ///< By Attention, which is given the same table.

  [[nodiscard]] std::vector<GivenNumber> numbers() const {
    std::vector<GivenNumber> out = table->numbers();
    for (const GivenNumber& number : heads.numbers())
      out.push_back(number);
    return out;
  }
  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    auto out = detail::owned(std::forward<X>(x));
    const auto by = detail::rotation("rotary", out, *table, positions, where);
    detail::require_rows_of_positions(out, by, where);
    kernels::rotary_forward(out.execution(), detail::mutable_token_rows(out), by,
                            detail::local_attention_shape(out, heads, where));
    return out;
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& gradient, const X&, const Y&) const {
    auto out = detail::owned(std::forward<G>(gradient));
    if (undone_later)
      return out;
    kernels::rotary_backward(out.execution(), detail::mutable_token_rows(out),
                             detail::rotation("rotary", out, *table, positions, {}),
                             detail::local_attention_shape(out, heads, {}));
    return out;
  }
};

} // namespace operation

/// @brief `qkv` with queries and keys rotated by their positions, in its memory if it is moved in.
/// @param table must outlive the tape
/// @throws InvalidArgument if the positions are of other sequences, or in ZigZagOrder of another rank's rows.
template <Operand Qkv, class Element, class Target, class Order>
[[nodiscard]] auto rotary(Qkv&& qkv, const RotaryTable<Element, Target>& table,
                          const TokenPositions<Order>& positions, HeadShape heads,
                          SourceLocation where = SourceLocation::current()) {
  return apply(operation::Rotary<Element, Target, Order>{&table, positions, heads}, where,
               std::forward<Qkv>(qkv));
}

namespace detail {

/// Memory for the results of attention on `qkv`.
template <LayoutType L, class E, class Target>
[[nodiscard]] AttentionOutput<L, std::remove_const_t<E>, Target>
attention_output(const ShardedTensor<L, E, Target>& qkv, HeadShape heads) {
  const std::int64_t all_heads = qkv.shape()[2] * heads.queries;
  return {{qkv.resources(), {qkv.shape()[0], qkv.shape()[1], all_heads * heads.of_value()}},
          {qkv.resources(), {qkv.shape()[0], qkv.shape()[1], all_heads}}};
}

/// Attention over the keys of this rank, which has whole sequences in their natural order.
template <LayoutType L, class E, class Target>
[[nodiscard]] AttentionOutput<L, std::remove_const_t<E>, Target>
local_attention(const ShardedTensor<L, E, Target>& qkv, HeadShape heads, const kernels::KeyMask& mask,
                SourceLocation where) {
  using Element = std::remove_const_t<E>;
  const kernels::AttentionShape shape = local_attention_shape(qkv, heads, where);
  auto out = attention_output(qkv, heads);
  auto workspace = workspace_of<AccumulationElement<Element>, Target>(
      qkv.resources(), kernels::attention_forward_workspace<Element>(qkv.execution(), shape, mask));
  kernels::attention_forward(qkv.execution(), token_rows(qkv), out.value.mutable_local_matrix(),
                             mutable_vector_of(out.log_sum_exp), shape,
                             kernels::AttentionBlock::whole(shape.sequence, mask), attention_scale(heads),
                             workspace.mutable_local());
  return out;
}

template <LayoutType L, class G, class E, class Target, class Saved>
[[nodiscard]] ShardedTensor<L, std::remove_const_t<E>, Target> local_attention_gradient(
    const ShardedTensor<AttentionLayout<L>, G, Target>& gradient, const ShardedTensor<L, E, Target>& qkv,
    const Saved& saved, HeadShape heads, const kernels::KeyMask& mask,
    const kernels::Rotation<AccumulationElement<std::remove_const_t<E>>>& undone, SourceLocation where) {
  using Element = std::remove_const_t<E>;
  const kernels::AttentionShape shape = local_attention_shape(qkv, heads, where);
  ShardedTensor<L, Element, Target> out(qkv.resources(), qkv.shape(), where);
  auto workspace = workspace_of<AccumulationElement<Element>, Target>(
      qkv.resources(), kernels::attention_backward_workspace<Element>(qkv.execution(), shape, mask));
  kernels::attention_backward(qkv.execution(), token_rows(qkv), saved.value.local_matrix(),
                              vector_of(saved.log_sum_exp), gradient.local_matrix(), mutable_token_rows(out),
                              shape, kernels::AttentionBlock::whole(shape.sequence, mask),
                              attention_scale(heads), workspace.mutable_local(), undone);
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
