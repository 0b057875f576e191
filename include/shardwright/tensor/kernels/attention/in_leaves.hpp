// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention on a host whose bits do not depend on the ranks that share a sequence: each has the keys
/// and values of whole sequences.

#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Copies tokens of whole sequences between the order of the ranks that share them, [ranks, batch, rows], and
/// that of the text, [batch, ranks * rows]. One token per call.
template <class Element, bool to_text> struct ReorderTokens {
  const Element* from;
  Element* to;
  std::size_t width;
  std::size_t batch;
  std::size_t rows;
  RowOrder order;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const std::size_t sequence = token / rows % batch, rank = token / rows / batch;
    const std::size_t at = order.position(sequence * order.sequence + rank * rows + token % rows);
    copy_lanes(from + (to_text ? token : at) * width, to + (to_text ? at : token) * width, 0, width);
  }
};

/// Copies `from` [ranks * tokens, width], the tokens of each rank in `order`, to the order of the
/// text; or back, with `to_text` false. `shape` is that of one rank.
template <bool to_text, class Execution, KernelMatrix From, KernelMatrix To>
void reorder_tokens(const Execution& execution, const From& from, const To& to, const AttentionShape& shape,
                    const RowOrder& order) {
  using Element = typename To::value_type;
  moves("sw::reorder_tokens", execution, from, to);
  run_lanes("sw::reorder_tokens", execution, from.extent(0),
            ReorderTokens<Element, to_text>{from.data(), to.data(), from.extent(1), shape.batch,
                                            shape.sequence, order});
}

/// Elements (AccumulationElement) of workspace for both functions below.
template <class Element, class Execution>
[[nodiscard]] std::size_t attention_in_leaves_workspace(const Execution& execution,
                                                        const AttentionShape& shape,
                                                        const AttentionBlock& block) {
  return attention_workers(execution, shape) * AttentionBuffers<AccumulationElement<Element>>::size(
                                                   shape, block.keys.rows, QueryLeaves(block).sums());
}

/// attention_forward of the queries of a block over its keys, which may be more than its queries.
/// @param key_values  [batch * keys, kv_heads * key_value_width], as pack_key_values makes it
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelVector Work>
void attention_forward_over(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                            const Out& out, const Lse& log_sum_exp, const AttentionShape& shape,
                            const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  constexpr const char* operation = "attention_forward_over";
  require_attention(operation, shape, qkv, out, log_sum_exp);
  run_attention_forward<Execution, Element, typename Out::value_type>(
      operation, execution,
      {span_of(qkv), KeyValueSpan<const Element>::packed(span_of(key_values), shape), span_of(out),
       log_sum_exp.data(), shape, block, false, static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

/// attention_backward of whole sequences, with dK and dV summed in leaves that ranks may share
/// (QueryLeaves).
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelMatrix DOut,
          KernelMatrix DQkv, KernelVector Work>
void attention_backward_in_leaves(const Execution& execution, const Qkv& qkv, const Out& out,
                                  const Lse& log_sum_exp, const DOut& d_out, const DQkv& d_qkv,
                                  const AttentionShape& shape, const AttentionBlock& block, double scale,
                                  const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  constexpr const char* operation = "attention_backward_in_leaves";
  require_attention(operation, shape, qkv, out, log_sum_exp);
  require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  require_own_keys(operation, shape, block);
  const auto input = span_of(qkv);
  const auto gradient = span_of(d_qkv);
  run_attention_backward<Execution, Element, Sum, true>(
      operation, execution,
      {input, KeyValueSpan<const Element>::fused(input, shape), span_of(out), log_sum_exp.data(),
       span_of(d_out), gradient, KeyValueSpan<Sum>::fused(gradient, shape), shape, block, false,
       static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

/// The same for the queries of one rank over the keys of whole sequences. `d_key_values` is the sum
/// over its queries; of `d_qkv`, only the queries' part is written.
/// @param key_values, d_key_values  [batch * keys, kv_heads * key_value_width], in the order of the text
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelMatrix DOut, KernelMatrix DQkv, KernelMatrix DKeyValues, KernelVector Work>
void attention_backward_in_leaves(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                                  const Out& out, const Lse& log_sum_exp, const DOut& d_out,
                                  const DQkv& d_qkv, const DKeyValues& d_key_values,
                                  const AttentionShape& shape, const AttentionBlock& block, double scale,
                                  const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  constexpr const char* operation = "attention_backward_in_leaves";
  require_attention(operation, shape, qkv, out, log_sum_exp);
  require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  run_attention_backward<Execution, Element, Sum, true>(
      operation, execution,
      {span_of(qkv), KeyValueSpan<const Element>::packed(span_of(key_values), shape), span_of(out),
       log_sum_exp.data(), span_of(d_out), span_of(d_qkv),
       KeyValueSpan<Sum>::packed(span_of(d_key_values), shape), shape, block, false,
       static_cast<AccumulationElement<Element>>(scale)},
      workspace);
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
