// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Grouped-query attention on a fused query-key-value buffer, forward and backward: under any mask on
/// a host, without lengths of keys on a device.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/attention/launch.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Elements (AccumulationElement) of workspace that attention_forward needs on this instance, for
/// whole sequences under this mask. `Out` is the element of the result.
template <class Element, class Out = Element, class Execution>
[[nodiscard]] std::size_t attention_forward_workspace(const Execution& execution, const AttentionShape& shape,
                                                      const KeyMask& mask = {}) {
  if constexpr (!runs_on_host<Execution>) {
    const std::size_t of_library = detail::library_workspace<Element, Out>(execution, shape, mask, false);
    const bool in_sums = is_narrow<Element> && !detail::runs_in_tiles<Element, Execution>(shape);
    return std::max(of_library, in_sums ? shape.tokens() * shape.output_width() : std::size_t{0});
  } else {
    return detail::attention_workers(execution, shape) *
           detail::AttentionBuffers<AccumulationElement<Element>>::size(shape, shape.sequence, 0);
  }
}

/// @brief Elements (AccumulationElement) of workspace that attention_backward needs on this instance, for
/// whole sequences under this mask. `Out` is the element of the gradient.
template <class Element, class Out = Element, class Execution>
[[nodiscard]] std::size_t attention_backward_workspace(const Execution& execution,
                                                       const AttentionShape& shape,
                                                       const KeyMask& mask = {}) {
  if constexpr (!runs_on_host<Execution>) {
    const std::size_t of_library = detail::library_workspace<Element, Out>(execution, shape, mask, true);
    const std::size_t in_sums = is_narrow<Element> ? shape.tokens() * shape.qkv_width() : 0;
    return std::max(of_library, detail::runs_in_tiles<Element, Execution>(shape)
                                    ? shape.tokens() * shape.heads()
                                    : in_sums);
  } else {
    return detail::attention_workers(execution, shape) *
           detail::AttentionBuffers<AccumulationElement<Element>>::size(shape, shape.sequence, 1);
  }
}

/// @brief out = softmax(scale Q K' under a mask) V for every head of every sequence; zeros, with a
/// log_sum_exp of -infinity, for a query that sees no key.
///
/// Cost: about 2 (head_dim + value_width) operations for each pair of query and key that the mask shows, by
/// blocks of 32 queries.
/// @param qkv          fused buffer of `shape`
/// @param out          [batch * sequence, heads * value_width], of the element of `qkv` or its
/// AccumulationElement
/// @param log_sum_exp  AccumulationElement [batch * heads * sequence], sequence fastest; written for the
/// backward pass
/// @param block        the positions of the tokens, which are queries and keys, and the mask
/// @param scale        usually 1 / sqrt(head_dim)
/// @param workspace    [attention_forward_workspace] elements
/// @throws InvalidArgument on a device for a mask with key lengths, or with documents in another order than
/// that of their text.
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelVector Work>
void attention_forward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                       const AttentionShape& shape, const AttentionBlock& block, double scale,
                       const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename Out::value_type;
  constexpr const char* operation = "attention_forward";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_own_keys(operation, shape, block);
  const auto input = span_of(qkv);
  detail::run_attention_forward<Execution, Element, Sum>(
      operation, execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape), span_of(out), log_sum_exp.data(),
       shape, block, false, static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

/// @brief The same queries over the keys and values of other tokens: `out` and `log_sum_exp` become those
/// over all keys so far.
///
/// Queries that see none of these keep theirs. Blocks may come in any order, each once, after
/// attention_forward over the queries' own tokens. `out` is of the AccumulationElement.
/// @param key_values  [batch * keys, kv_heads * key_value_width], as pack_key_values makes it
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelVector Work>
void attention_forward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                             const Out& out, const Lse& log_sum_exp, const AttentionShape& shape,
                             const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename Out::value_type;
  static_assert(std::is_same_v<Sum, AccumulationElement<Element>>,
                "attention_forward_block: the sums over blocks of keys must be of the AccumulationElement.");
  constexpr const char* operation = "attention_forward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  const auto keys = span_of(key_values);
  detail::run_attention_forward<Execution, Element, Sum>(
      operation, execution,
      {span_of(qkv), detail::KeyValueSpan<const Element>::packed(keys, shape), span_of(out),
       log_sum_exp.data(), shape, block, true, static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

/// @brief d_qkv from the forward pass's buffers and d_out; probabilities are recomputed, not stored.
///
/// Cost: about 6 head_dim + 4 value_width operations for each pair of query and key that the mask shows. Sums
/// run in a fixed order.
/// @param qkv          fused buffer, as in the forward pass
/// @param out          output of the forward pass
/// @param log_sum_exp  from the forward pass
/// @param d_out        [batch * sequence, heads * value_width]
/// @param d_qkv        as qkv, or of its AccumulationElement; all of it is written
/// @param block        as in the forward pass
/// @param workspace    [attention_backward_workspace] elements
/// @param undone       rotation of the queries and keys in `qkv`, if the gradient is to be that before the
/// rotation; tiles need no other pass over memory for it
/// @throws InvalidArgument for other shapes, and for a rotation that does not fit them.
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelMatrix DOut,
          KernelMatrix DQkv, KernelVector Work>
void attention_backward(
    const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp, const DOut& d_out,
    const DQkv& d_qkv, const AttentionShape& shape, const AttentionBlock& block, double scale,
    const Work& workspace,
    const Rotation<AccumulationElement<typename Qkv::non_const_value_type>>& undone = {}) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  constexpr const char* operation = "attention_backward";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  detail::require_own_keys(operation, shape, block);
  if (undone.turns())
    detail::require_rotation(operation, undone, shape);
  const auto input = span_of(qkv);
  const auto gradient = span_of(d_qkv);
  const bool done = detail::run_attention_backward<Execution, Element, Sum>(
      operation, execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape), span_of(out), log_sum_exp.data(),
       span_of(d_out), gradient, detail::KeyValueSpan<Sum>::fused(gradient, shape), shape, block, false,
       static_cast<AccumulationElement<Element>>(scale), undone},
      workspace);
  if (undone.turns() && !done)
    detail::run_rotary(execution, gradient, undone, shape, -1);
}

/// @brief Adds the gradient from a block of other tokens' keys and values to the queries' part of `d_qkv`,
/// and writes the gradients of these keys and values.
///
/// @param out, log_sum_exp     of all blocks
/// @param d_qkv, d_key_values  AccumulationElement, as qkv and key_values; all of d_key_values is written
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelMatrix DOut, KernelMatrix DQkv, KernelMatrix DKeyValues, KernelVector Work>
void attention_backward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                              const Out& out, const Lse& log_sum_exp, const DOut& d_out, const DQkv& d_qkv,
                              const DKeyValues& d_key_values, const AttentionShape& shape,
                              const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  static_assert(std::is_same_v<Sum, AccumulationElement<Element>>,
                "attention_backward_block: the sums over blocks of keys must be of the AccumulationElement.");
  constexpr const char* operation = "attention_backward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  detail::require_block(operation, shape, block, d_key_values);
  const auto keys = span_of(key_values);
  detail::run_attention_backward<Execution, Element, Sum>(
      operation, execution,
      {span_of(qkv), detail::KeyValueSpan<const Element>::packed(keys, shape), span_of(out),
       log_sum_exp.data(), span_of(d_out), span_of(d_qkv),
       detail::KeyValueSpan<Sum>::packed(span_of(d_key_values), shape), shape, block, true,
       static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
