// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Causal grouped-query attention on a fused query-key-value buffer, forward and backward.

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
  if (shape.tokens() == 0 || shape.kv_heads == 0)
    return;
  const auto in = detail::span_of(qkv);
  const detail::MatrixSpan<const Element> input{in.data, in.rows, in.columns, in.stride};
  const Element factor = static_cast<Element>(scale);
  if constexpr (detail::runs_on_host<Execution>) {
    detail::require(workspace.extent(0) >= attention_forward_workspace<Element>(execution, shape),
                    "attention_forward", "the workspace is too small (see attention_forward_workspace).");
    const std::size_t workers = detail::attention_workers(execution, shape);
    detail::run("sw::attention", execution, workers,
                detail::AttentionForward<Element>{input, detail::span_of(out), log_sum_exp.data(), shape,
                                                  factor, workspace.data(), workers});
  } else {
    detail::run(
        "sw::attention", execution, shape.tokens() * shape.heads(),
        detail::AttentionForwardRow<Element>{input, detail::span_of(out), log_sum_exp.data(), shape, factor});
  }
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
  if (shape.tokens() == 0 || shape.kv_heads == 0)
    return;
  const auto in = detail::span_of(qkv);
  const auto outer = detail::span_of(out);
  const auto gradient = detail::span_of(d_out);
  const detail::MatrixSpan<const Element> input{in.data, in.rows, in.columns, in.stride};
  const detail::MatrixSpan<const Element> output{outer.data, outer.rows, outer.columns, outer.stride};
  const detail::MatrixSpan<const Element> d_output{gradient.data, gradient.rows, gradient.columns,
                                                   gradient.stride};
  const Element factor = static_cast<Element>(scale);
  if constexpr (detail::runs_on_host<Execution>) {
    detail::require(workspace.extent(0) >= attention_backward_workspace<Element>(execution, shape),
                    "attention_backward", "the workspace is too small (see attention_backward_workspace).");
    const std::size_t workers = detail::attention_workers(execution, shape);
    detail::run("sw::d_attention", execution, workers,
                detail::AttentionBackward<Element>{input, output, log_sum_exp.data(), d_output,
                                                   detail::span_of(d_qkv), shape, factor, workspace.data(),
                                                   workers});
  } else {
    const detail::AttentionBackwardQuery<Element> query{
        input, output, log_sum_exp.data(), d_output, detail::span_of(d_qkv), shape, factor};
    detail::run("sw::d_attn_q", execution, shape.tokens() * shape.heads(), query);
    detail::run("sw::d_attn_key", execution, shape.tokens() * shape.kv_heads,
                detail::AttentionBackwardKey<Element>{query});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
