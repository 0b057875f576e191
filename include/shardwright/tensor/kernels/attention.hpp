// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Causal grouped-query attention on a fused query-key-value buffer, forward and backward.

#include <shardwright/tensor/kernels/attention_block.hpp>
#include <shardwright/tensor/kernels/attention_device.hpp>
#include <shardwright/tensor/kernels/attention_host.hpp>
#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Functor calls that share the work of a host launch; each has its own part of the workspace.
template <class Execution>
std::size_t attention_workers(const Execution& execution, const AttentionShape& shape) {
  const std::size_t units = shape.batch * shape.kv_heads;
  const std::size_t threads = static_cast<std::size_t>(execution.concurrency());
  return threads < units ? threads : units;
}

template <class Qkv, class Out, class Lse>
void require_attention(const char* operation, const AttentionShape& shape, const Qkv& qkv, const Out& out,
                       const Lse& log_sum_exp) {
  require(shape.q_per_kv >= 1 && shape.head_dim >= 1, operation,
          "the shape must have heads of at least one element.");
  require(qkv.extent(0) == shape.tokens() && qkv.extent(1) == shape.qkv_width(), operation,
          "the buffer must be [batch * sequence, kv_heads * (q_per_kv + 2) * head_dim].");
  require(out.extent(0) == shape.tokens() && out.extent(1) == shape.output_width(), operation,
          "the output must be [batch * sequence, heads * head_dim].");
  require(log_sum_exp.extent(0) == shape.tokens() * shape.heads(), operation,
          "log_sum_exp must be [batch * heads * sequence].");
}

/// The rows of a block must be those of the buffers.
template <class KeyValues>
void require_block(const char* operation, const AttentionShape& shape, const CausalBlock& block,
                   const KeyValues& key_values) {
  require(block.queries.rows == shape.sequence && block.keys.rows <= shape.sequence, operation,
          "the block must have one query for each token of a sequence, and no more keys.");
  require(key_values.extent(0) == shape.batch * block.keys.rows &&
              key_values.extent(1) == shape.kv_heads * 2 * shape.head_dim,
          operation, "keys and values must be [batch * keys, kv_heads * 2 * head_dim].");
}

template <class Execution, class Element, class Work>
void run_attention_forward(const char* operation, const Execution& execution,
                           const AttentionForwardRow<Element>& row, const Work& workspace) {
  if (row.shape.tokens() == 0 || row.shape.kv_heads == 0 || row.block.keys_needed() == 0)
    return;
  if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, row.shape);
    require(workspace.extent(0) >= workers * AttentionBuffers<Element>::forward_size(row.shape), operation,
            "the workspace is too small (see attention_forward_workspace).");
    run("sw::attention", execution, workers,
        AttentionForward<Element>{row.qkv, row.key_values, row.out, row.log_sum_exp, row.shape, row.block,
                                  row.merge, row.scale, workspace.data(), workers});
  } else {
    run("sw::attention", execution, row.shape.tokens() * row.shape.heads(), row);
  }
}

template <class Execution, class Element, class Work>
void run_attention_backward(const char* operation, const Execution& execution,
                            const AttentionBackwardQuery<Element>& query, const Work& workspace) {
  const AttentionShape& shape = query.shape;
  if (shape.tokens() == 0 || shape.kv_heads == 0 || query.block.keys.rows == 0)
    return;
  if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, shape);
    require(workspace.extent(0) >= workers * AttentionBuffers<Element>::backward_size(shape), operation,
            "the workspace is too small (see attention_backward_workspace).");
    run("sw::d_attention", execution, workers,
        AttentionBackward<Element>{query.qkv, query.key_values, query.out, query.log_sum_exp, query.d_out,
                                   query.d_qkv, query.d_key_values, shape, query.block, query.merge,
                                   query.scale, workspace.data(), workers});
  } else {
    run("sw::d_attn_q", execution, shape.tokens() * shape.heads(), query);
    run("sw::d_attn_key", execution, shape.batch * query.block.keys.rows * shape.kv_heads,
        AttentionBackwardKey<Element>{query});
  }
}

} // namespace detail

/// @brief Elements of workspace that attention_forward needs on this instance; 0 on a device.
template <class Element, class Execution>
[[nodiscard]] std::size_t attention_forward_workspace(const Execution& execution,
                                                      const AttentionShape& shape) {
  if constexpr (!detail::runs_on_host<Execution>)
    return 0;
  return detail::attention_workers(execution, shape) * detail::AttentionBuffers<Element>::forward_size(shape);
}

/// @brief Elements of workspace that attention_backward needs on this instance; 0 on a device.
template <class Element, class Execution>
[[nodiscard]] std::size_t attention_backward_workspace(const Execution& execution,
                                                       const AttentionShape& shape) {
  if constexpr (!detail::runs_on_host<Execution>)
    return 0;
  return detail::attention_workers(execution, shape) *
         detail::AttentionBuffers<Element>::backward_size(shape);
}

/// @brief out = softmax(scale Q K' under the causal mask) V for every head of every sequence.
///
/// Cost: about 2 batch heads sequence^2 head_dim operations.
/// @param qkv          fused buffer of `shape`
/// @param out          [batch * sequence, heads * head_dim]
/// @param log_sum_exp  [batch * heads * sequence], sequence fastest; written for the backward pass
/// @param scale        usually 1 / sqrt(head_dim)
/// @param workspace    [attention_forward_workspace] elements
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelVector Work>
void attention_forward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                       const AttentionShape& shape, double scale, const Work& workspace) {
  using Element = typename Out::value_type;
  detail::require_attention("attention_forward", shape, qkv, out, log_sum_exp);
  const auto input = detail::constant(detail::span_of(qkv));
  detail::run_attention_forward<Execution, Element>(
      "attention_forward", execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape), detail::span_of(out),
       log_sum_exp.data(), shape, CausalBlock::whole(shape.sequence), false, static_cast<Element>(scale)},
      workspace);
}

/// @brief The same queries over the keys and values of other tokens: `out` and `log_sum_exp` become those of
/// all keys met so far. Queries that see none of these keep theirs.
///
/// Blocks may be met in any order, each once, attention_forward over the queries' own tokens first.
/// @param key_values  [batch * keys, kv_heads * 2 * head_dim], as pack_key_values makes it
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelVector Work>
void attention_forward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                             const Out& out, const Lse& log_sum_exp, const AttentionShape& shape,
                             const CausalBlock& block, double scale, const Work& workspace) {
  using Element = typename Out::value_type;
  constexpr const char* operation = "attention_forward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  const auto keys = detail::constant(detail::span_of(key_values));
  detail::run_attention_forward<Execution, Element>(
      operation, execution,
      {detail::constant(detail::span_of(qkv)), detail::KeyValueSpan<const Element>::packed(keys, shape),
       detail::span_of(out), log_sum_exp.data(), shape, block, true, static_cast<Element>(scale)},
      workspace);
}

/// @brief d_qkv from the forward pass's buffers and d_out; probabilities are computed again, not stored.
///
/// Cost: about 5 batch heads sequence^2 head_dim operations. Sums run in a fixed order.
/// @param qkv          fused buffer, as in the forward pass
/// @param out          output of the forward pass
/// @param log_sum_exp  from the forward pass
/// @param d_out        [batch * sequence, heads * head_dim]
/// @param d_qkv        as qkv; all of it is written
/// @param workspace    [attention_backward_workspace] elements
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelMatrix DOut,
          KernelMatrix DQkv, KernelVector Work>
void attention_backward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                        const DOut& d_out, const DQkv& d_qkv, const AttentionShape& shape, double scale,
                        const Work& workspace) {
  using Element = typename DQkv::value_type;
  detail::require_attention("attention_backward", shape, qkv, out, log_sum_exp);
  detail::require_attention("attention_backward", shape, d_qkv, d_out, log_sum_exp);
  const auto input = detail::constant(detail::span_of(qkv));
  const auto gradient = detail::span_of(d_qkv);
  detail::run_attention_backward<Execution, Element>(
      "attention_backward", execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape),
       detail::constant(detail::span_of(out)), log_sum_exp.data(), detail::constant(detail::span_of(d_out)),
       gradient, detail::KeyValueSpan<Element>::fused(gradient, shape), shape,
       CausalBlock::whole(shape.sequence), false, static_cast<Element>(scale)},
      workspace);
}

/// @brief What a block of other tokens' keys and values adds to the queries' part of `d_qkv`, and the
/// gradients of these keys and values from the queries.
///
/// @param out, log_sum_exp  of all blocks
/// @param d_key_values      as key_values; all of it is written
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelMatrix DOut, KernelMatrix DQkv, KernelMatrix DKeyValues, KernelVector Work>
void attention_backward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                              const Out& out, const Lse& log_sum_exp, const DOut& d_out, const DQkv& d_qkv,
                              const DKeyValues& d_key_values, const AttentionShape& shape,
                              const CausalBlock& block, double scale, const Work& workspace) {
  using Element = typename DQkv::value_type;
  constexpr const char* operation = "attention_backward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  detail::require_block(operation, shape, block, d_key_values);
  const auto keys = detail::constant(detail::span_of(key_values));
  detail::run_attention_backward<Execution, Element>(
      operation, execution,
      {detail::constant(detail::span_of(qkv)), detail::KeyValueSpan<const Element>::packed(keys, shape),
       detail::constant(detail::span_of(out)), log_sum_exp.data(), detail::constant(detail::span_of(d_out)),
       detail::span_of(d_qkv), detail::KeyValueSpan<Element>::packed(detail::span_of(d_key_values), shape),
       shape, block, true, static_cast<Element>(scale)},
      workspace);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
