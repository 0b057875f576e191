// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention with token positions, on whole sequences or on sequences sharded over a ring of ranks.

#include <shardwright/nn/attention.hpp>
#include <shardwright/nn/attention/context.hpp>
#include <shardwright/nn/attention/gathered.hpp>
#include <shardwright/nn/attention/ring.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The ring of ranks that share a sequence, or none if one rank has all of it.
template <LayoutType L, class E, class Target, class Order>
[[nodiscard]] std::optional<RingAttention<std::remove_const_t<E>, Target>>
ring_of(const ShardedTensor<L, E, Target>& qkv, const TokenPositions<Order>& positions, HeadShape heads,
        const kernels::KeyMask& mask, SourceLocation where) {
  require_own_positions("attention", qkv, positions, AttentionOrder<L, Order>::sharded, where);
  if constexpr (AttentionOrder<L, Order>::value && AttentionOrder<L, Order>::sharded) {
    const kernels::AttentionShape shape = local_attention_shape(qkv, heads, where);
    if (positions.ranks() > 1 && shape.tokens() > 0) {
      const AxisBinding binding = bind_axes(qkv.core(), L::axes);
      const int axis = binding.mesh_axis[static_cast<std::size_t>(L::value.shard(1)[0])];
      return RingAttention<std::remove_const_t<E>, Target>(
          qkv.resources(), qkv.core().template communicator<Target>(1u << axis), positions, shape, mask,
          attention_scale(heads), where);
    }
  }
  return std::nullopt;
}

/// The same on a Reproducible target, also for whole sequences, whose gradient must have the same bits.
template <LayoutType L, class E, class Target, class Order>
requires is_reproducible<Target>
[[nodiscard]] std::optional<GatheredAttention<std::remove_const_t<E>, Target>>
ring_of(const ShardedTensor<L, E, Target>& qkv, const TokenPositions<Order>& positions, HeadShape heads,
        const kernels::KeyMask& mask, SourceLocation where) {
  require_own_positions("attention", qkv, positions, AttentionOrder<L, Order>::sharded, where);
  const kernels::AttentionShape shape = local_attention_shape(qkv, heads, where);
  if (!AttentionOrder<L, Order>::value || shape.tokens() == 0)
    return std::nullopt;
  unsigned axes = 0;
  if constexpr (AttentionOrder<L, Order>::sharded)
    axes = 1u << bind_axes(qkv.core(), L::axes).mesh_axis[static_cast<std::size_t>(L::value.shard(1)[0])];
  return GatheredAttention<std::remove_const_t<E>, Target>(qkv.resources(), axes, positions, shape, mask,
                                                           attention_scale(heads), where);
}

} // namespace detail

/// @brief Attention, softmax(Q K' / sqrt(head width)) V under a mask, for each query head, of tokens at
/// `positions`. The layout of the input determines the method: a whole sequence is processed locally; for a
/// sharded one, keys and values travel around the ring of ranks that share it.
///
/// Equal to attention on whole sequences up to rounding, and bitwise if one rank has the whole sequence.
/// Blocks are merged in a fixed order. Cost of the ring: ranks - 1 messages of keys and values to the next
/// rank, each during the computation of the previous block; keys that no query of the rank sees are skipped.
/// @param qkv [batch, sequence, kv_heads, (queries + 1) * head width + value width]
/// @param mask which keys a query sees: `causal`, `full`, `sliding_window<n>`, or `padded` or `documents` of
/// one of them; a device has all but `padded`
/// @throws InvalidArgument if the last extent is not that, or kv_heads does not divide over its ranks.
template <LayoutType L, class E, class Target, class Order, AttentionMask Mask = CausalMask>
[[nodiscard]] AttentionOutput<L, std::remove_const_t<E>, Target>
attention(const ShardedTensor<L, E, Target>& qkv, const TokenPositions<Order>& positions, HeadShape heads,
          const Mask& mask = {}, SourceLocation where = SourceLocation::current()) {
  const kernels::KeyMask keys = detail::key_mask(mask, qkv, positions.text(), where);
  auto ring = detail::ring_of(qkv, positions, heads, keys, where);
  if (!ring)
    return detail::local_attention(qkv, heads, keys, where);
  auto out = detail::attention_output(qkv, heads);
  ring->forward(detail::token_rows(qkv), out.value.mutable_local_matrix(),
                detail::mutable_vector_of(out.log_sum_exp));
  return out;
}

/// @brief The gradient of qkv from that of attention's result; recomputes the scores.
/// @param gradient [batch, sequence, heads * value width]
/// @param saved the value returned by attention
/// @param turned_by the table by which the queries and keys were rotated, if the gradient is to be that
/// before the rotation; or null
///
/// Cost of the ring: that of attention, and as many messages again for the gradients of keys and values.
template <LayoutType L, class G, class E, class Target, class Saved, class Order,
          AttentionMask Mask = CausalMask>
[[nodiscard]] ShardedTensor<L, std::remove_const_t<E>, Target> attention_gradient(
    const ShardedTensor<AttentionLayout<L>, G, Target>& gradient, const ShardedTensor<L, E, Target>& qkv,
    const Saved& saved, const TokenPositions<Order>& positions, HeadShape heads, const Mask& mask = {},
    const std::type_identity_t<RotaryTable<std::remove_const_t<E>, Target>>* turned_by = nullptr,
    SourceLocation where = SourceLocation::current()) {
  using Element = std::remove_const_t<E>;
  const kernels::KeyMask keys = detail::key_mask(mask, qkv, positions.text(), where);
  kernels::Rotation<AccumulationElement<Element>> undone;
  if (turned_by != nullptr)
    undone = detail::rotation("rotary", qkv, *turned_by, positions, where);
  auto ring = detail::ring_of(qkv, positions, heads, keys, where);
  if (!ring)
    return detail::local_attention_gradient(gradient, qkv, saved, heads, keys, undone, where);
  ShardedTensor<L, Element, Target> out(qkv.resources(), qkv.shape(), where);
  ring->backward(detail::token_rows(qkv), saved.value.local_matrix(), detail::vector_of(saved.log_sum_exp),
                 gradient.local_matrix(), detail::mutable_token_rows(out));
  if (undone.turns())
    kernels::rotary_backward(out.execution(), detail::mutable_token_rows(out), undone,
                             detail::local_attention_shape(out, heads, where));
  return out;
}

namespace operation {

/// @brief attention with its gradient, which recomputes the scores. With a table, by which Rotary turned its
/// operand, it undoes the rotation where it stores the gradient; without one, `Table` is a null pointer.
template <class Order, AttentionMask Mask = CausalMask, class Table = std::nullptr_t> struct Attention {
  static constexpr std::string_view name = "attention";
  static constexpr bool gradient_reads_input = true;
  static constexpr bool gradient_reads_output = true;
  static constexpr std::array<std::string_view, 0> differs_along{}; // one rule for all heads and sequences
  TokenPositions<Order> positions;
  HeadShape heads;
  Mask mask{};
  Table turned_by{};

  [[nodiscard]] auto numbers() const { return heads.numbers(); }
  template <AnyShardedTensor Qkv> [[nodiscard]] auto forward(SourceLocation where, const Qkv& qkv) const {
    auto out = shardwright::attention(qkv, positions, heads, mask, where);
    return detail::WithState<decltype(out.value), decltype(out.log_sum_exp)>{std::move(out.value),
                                                                             std::move(out.log_sum_exp)};
  }
  template <class G, class Qkv, class Y, class State>
  [[nodiscard]] auto gradient(const G& gradient, const Qkv& qkv, const Y& y, const State& log_sum_exp) const {
    struct {
      const Y& value;
      const State& log_sum_exp;
    } const saved{y, log_sum_exp};
    return attention_gradient(gradient, qkv, saved, positions, heads, mask, turned_by);
  }
};

} // namespace operation

namespace detail {

/// Rotates queries and keys for attention_after_rotary, which also gives the gradient before the rotation.
template <TapeOperand Qkv, class Element, class Target, class Order>
[[nodiscard]] auto rotary_before_attention(Qkv&& qkv, const RotaryTable<Element, Target>& table,
                                           const TokenPositions<Order>& positions, HeadShape heads,
                                           SourceLocation where) {
  return apply(operation::Rotary<Element, Target, Order>{&table, positions, heads, true}, where,
               std::forward<Qkv>(qkv));
}
/// Attention on a tape, which compares key lengths and documents between ranks if it checks inputs, and then
/// reads documents back from a device. With a null pointer for the table, its gradient is that of `qkv`.
template <TapeOperand Qkv, class Table, class Order, AttentionMask Mask>
[[nodiscard]] auto attention_after_rotary(Qkv&& qkv, Table table, const TokenPositions<Order>& positions,
                                          HeadShape heads, const Mask& mask, SourceLocation where) {
  if constexpr (is_padded<Mask>)
    if (qkv.tape().checks_inputs())
      require_equal_inputs(mask.lengths(), where);
  if constexpr (has_documents<Mask>)
    if (mask.starts() && qkv.tape().checks_inputs()) {
      require_equal_inputs(*mask.starts(), where);
      using Target = typename Mask::Starts::target;
      if constexpr (!Target::host_accessible && !counts_only<Target>)
        require_document_starts(*mask.starts(), local_values(*mask.starts()).data(), where);
    }
  return apply(operation::Attention<Order, Mask, Table>{positions, heads, mask, table}, where,
               std::forward<Qkv>(qkv));
}

} // namespace detail

/// @brief The same on a tape, which compares key lengths and documents between ranks if it checks inputs.
template <detail::TapeOperand Qkv, class Order, AttentionMask Mask = CausalMask>
[[nodiscard]] auto attention(Qkv&& qkv, const TokenPositions<Order>& positions, HeadShape heads,
                             const Mask& mask = {}, SourceLocation where = SourceLocation::current()) {
  return detail::attention_after_rotary(std::forward<Qkv>(qkv), nullptr, positions, heads, mask, where);
}
/// @brief The same for whole sequences in their natural order.
template <Operand Qkv, AttentionMask Mask = CausalMask>
[[nodiscard]] auto attention(Qkv&& qkv, HeadShape heads, const Mask& mask = {},
                             SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::WholeSequence<typename std::remove_cvref_t<Qkv>::layout>::value) {
    const TokenPositions<NaturalOrder> positions(qkv.shape()[1], 1, 0);
    return attention(std::forward<Qkv>(qkv), positions, heads, mask, where);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
