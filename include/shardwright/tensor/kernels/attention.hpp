// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Grouped-query attention on a fused query-key-value buffer, forward and backward: under any mask on
/// a host, causal or full on a device.

#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/tensor/kernels/attention_block.hpp>
#include <shardwright/tensor/kernels/attention_device.hpp>
#include <shardwright/tensor/kernels/attention_host_backward.hpp>
#include <shardwright/tensor/kernels/attention_lanes.hpp>
#include <shardwright/tensor/kernels/attention_problem.hpp>
#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/attention_tiles.hpp>
#include <shardwright/tensor/kernels/attention_tiles_backward.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/narrow_rows.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/cuda_block.hpp>
#if defined(SHARDWRIGHT_WITH_CUDNN)
#include <shardwright/tensor/kernels/cuda_attention.hpp>
#endif
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

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
          "the buffer must be [batch * sequence, kv_heads * group_width].");
  require(out.extent(0) == shape.tokens() && out.extent(1) == shape.output_width(), operation,
          "the output must be [batch * sequence, heads * value_width].");
  require(log_sum_exp.extent(0) == shape.tokens() * shape.heads(), operation,
          "log_sum_exp must be [batch * heads * sequence].");
}

/// The rows of a block must be those of the buffers.
template <class KeyValues>
void require_block(const char* operation, const AttentionShape& shape, const AttentionBlock& block,
                   const KeyValues& key_values) {
  require(block.queries.rows == shape.sequence && block.keys.rows <= shape.sequence, operation,
          "the block must have one query for each token of a sequence, and at most as many keys.");
  require(key_values.extent(0) == shape.batch * block.keys.rows &&
              key_values.extent(1) == shape.kv_heads * shape.key_value_width(),
          operation, "keys and values must be [batch * keys, kv_heads * key_value_width].");
}

/// The same if the keys are those of the queries' own tokens.
inline void require_own_keys(const char* operation, const AttentionShape& shape,
                             const AttentionBlock& block) {
  require(block.queries.rows == shape.sequence && block.keys == block.queries, operation,
          "the block must have one query and one key for each token of a sequence.");
}

/// Whether the sums of a launch need separate memory, because the outputs have too few bits for them.
template <class Execution, class Out>
inline constexpr bool sums_apart = !runs_on_host<Execution> && is_narrow<Out>;

template <class Work>
void require_workspace(const char* operation, const Work& workspace, std::size_t elements) {
  require(workspace.extent(0) >= elements, operation,
          "the workspace is too small (see attention_forward_workspace and attention_backward_workspace).");
}

/// Whether a launch is one of tiles on tensor cores.
template <class Element, class Execution>
[[nodiscard]] constexpr bool runs_in_tiles(const AttentionShape& shape) {
  return BlockLauncher<Execution>::available && is_narrow<Element> && has_tiles(shape);
}

/// Copies of tiles move 16 bytes at a time.
[[nodiscard]] inline bool is_tile_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}
template <class Element>
[[nodiscard]] bool is_tile_aligned(const MatrixSpan<Element>& rows) {
  return is_tile_aligned(rows.data) && rows.stride * sizeof(Element) % 16 == 0;
}

template <class Element>
void require_tiles(const char* operation, const MatrixSpan<Element>& rows) {
  require(is_tile_aligned(rows), operation,
          "rows must begin at multiples of 16 bytes on this device (use contiguous buffers).");
}

template <class Execution, template <class, class, int> class Tiles, class Element, class Out, class... More>
void run_tiles(const Execution& execution, const AttentionShape& shape, const auto& members, More... more) {
  const auto start = [&](const auto& functor) {
    BlockLauncher<Execution>::run(execution, functor.blocks(), functor.shared_bytes, functor);
  };
  if (shape.head_dim <= 64)
    start(Tiles<Element, Out, 64>{members, more...});
  else
    start(Tiles<Element, Out, 128>{members, more...});
}

/// A warp per row, or a thread if a head is too wide for a warp.
template <class Execution, class Element>
void run_attention_forward_rows(const Execution& execution, const AttentionForwardRow<Element>& row) {
  const std::size_t rows = row.shape.tokens() * row.shape.heads();
  if (has_lanes<Element>(row.shape))
    run_lanes("sw::attention", execution, rows, AttentionForwardLanes<Element>{row});
  else
    run("sw::attention", execution, rows, row);
}

/// What tiles, lanes and rows of a device know.
inline void require_causal_form(const char* operation, const AttentionBlock& block) {
  require(
      block.mask.has_causal_form(), operation,
      "on a device every query must see the keys up to its own, or all keys (use another mask on hosts, or cuDNN for windows over whole sequences).");
}

/// Whether a launch may be the library's: of 16-bit elements, whose sums nobody continues.
template <class Execution, class Element, class Out>
inline constexpr bool may_be_library_attention =
    LibraryAttention<Execution>::available&& is_narrow<Element>&& std::is_same_v<Element, Out>;

/// Whether the library has done it.
template <class Execution, class Element, class Work>
[[nodiscard]] bool run_library_forward(const Execution& execution,
                                       const AttentionForwardRow<Element, Element>& row,
                                       const AttentionBlock& block, const Work& workspace) {
  const Element* const queries = row.qkv.data;
  if (row.merge || !is_tile_aligned(row.qkv) || !is_tile_aligned(row.out) ||
      !is_tile_aligned(row.log_sum_exp))
    return false;
  const auto calls = library_calls<Element>(row.shape, block, {row.qkv.stride, row.out.stride, 0, 0}, false);
  const Element* const keys = row.key_values.key(0, 0);
  return calls && LibraryAttention<Execution>::plans(execution).template run<Element>(
                      *calls,
                      {.query = queries,
                       .key = keys,
                       .value = keys + row.shape.head_dim,
                       .out = row.out.data,
                       .sums = row.log_sum_exp,
                       .scale = row.scale},
                      workspace.data(), workspace.extent(0) * sizeof(float));
}

/// The same of the gradient.
template <class Execution, class Element, class Work>
[[nodiscard]] bool run_library_backward(const Execution& execution,
                                        const AttentionBackwardQuery<Element, Element>& query,
                                        const AttentionBlock& block, const Work& workspace) {
  if (query.merge || !is_tile_aligned(query.qkv) || !is_tile_aligned(query.out) ||
      !is_tile_aligned(query.d_out) || !is_tile_aligned(query.d_qkv) || !is_tile_aligned(query.log_sum_exp))
    return false;
  const auto calls = library_calls<Element>(
      query.shape, block, {query.qkv.stride, query.out.stride, query.d_out.stride, query.d_qkv.stride}, true);
  const Element* const keys = query.key_values.key(0, 0);
  Element* const d_keys = query.d_key_values.key(0, 0);
  return calls && LibraryAttention<Execution>::plans(execution).template run<Element>(
                      *calls,
                      {.query = query.qkv.data,
                       .key = keys,
                       .value = keys + query.shape.head_dim,
                       .out = const_cast<Element*>(query.out.data), // only read
                       .sums = const_cast<float*>(query.log_sum_exp),
                       .d_out = query.d_out.data,
                       .d_query = query.d_qkv.data,
                       .d_key = d_keys,
                       .d_value = d_keys + query.shape.head_dim,
                       .scale = query.scale},
                      workspace.data(), workspace.extent(0) * sizeof(float));
}

/// Floats of workspace that the library needs with contiguous buffers; 0 where it has no kernel.
template <class Element, class Out, class Execution>
[[nodiscard]] std::size_t library_workspace(const Execution& execution, const AttentionShape& shape,
                                            const KeyMask& mask, bool backward) {
  if constexpr (may_be_library_attention<Execution, Element, Out>) {
    if (shape.tokens() == 0 || shape.kv_heads == 0)
      return 0;
    const auto calls = library_calls<Element>(shape, AttentionBlock::whole(shape.sequence, mask),
                                              AttentionRows::contiguous(shape, backward), backward);
    if (!calls)
      return 0;
    const auto bytes = LibraryAttention<Execution>::plans(execution).workspace(calls->problem);
    return (bytes.value_or(0) + sizeof(float) - 1) / sizeof(float);
  } else {
    return 0;
  }
}

/// Counts the operations for a dry run, which knows no lengths: for each head and visible pair, two per
/// element of a key and of a value, times the number of products with each.
inline void count_attention(std::size_t key_products, std::size_t value_products, const AttentionShape& shape,
                            const AttentionBlock& block) {
  const std::size_t of_a_pair = 2 * (key_products * shape.head_dim + value_products * shape.value_width());
  shardwright::detail::count_flops(static_cast<double>(of_a_pair * shape.batch * shape.heads()) *
                                   static_cast<double>(block.pairs()));
}

/// `row.block` is the device's form of `block`.
template <class Execution, class Element, class Out, class Work>
void run_attention_forward(const char* operation, const Execution& execution,
                           const AttentionForwardRow<Element, Out>& row, const AttentionBlock& block,
                           const Work& workspace) {
  using Number = MainElement<Element>;
  const AttentionShape& shape = row.shape;
  if (shape.tokens() == 0 || shape.kv_heads == 0 || (row.merge && block.hides_all_keys()))
    return;
  if constexpr (counts_only<Execution>) {
    count_attention(1, 1, shape, block);
  } else if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, shape);
    require_workspace(operation, workspace, workers * AttentionBuffers<Number>::forward_size(shape));
    run("sw::attention", execution, workers,
        AttentionForward<Element, Out>{row.qkv, row.key_values, row.out, row.log_sum_exp, shape, block,
                                       row.merge, row.scale, workspace.data(), workers});
  } else {
    if constexpr (may_be_library_attention<Execution, Element, Out>)
      if (run_library_forward(execution, row, block, workspace))
        return;
    require_causal_form(operation, block);
    if constexpr (runs_in_tiles<Element, Execution>({})) {
      if (runs_in_tiles<Element, Execution>(shape)) {
        require(row.scale > 0, operation, "the scale must be positive on this device.");
        require_tiles(operation, row.qkv);
        require_tiles(operation, row.key_values.tokens);
        run_tiles<Execution, AttentionForwardTiles, Element, Out>(execution, shape, row);
        return;
      }
    }
    if constexpr (sums_apart<Execution, Out>) {
      require_workspace(operation, workspace, shape.tokens() * shape.output_width());
      const MatrixSpan<Number> sums{workspace.data(), row.out.rows, row.out.columns, row.out.columns};
      run_attention_forward_rows<Execution, Element>(
          execution, {row.qkv, row.key_values, sums, row.log_sum_exp, shape, row.block, false, row.scale});
      run_lanes("sw::round", execution, sums.rows,
                RoundRows<Out>{sums.data, sums.columns, 0, row.out.data, row.out.stride});
    } else {
      run_attention_forward_rows<Execution, Element>(execution, row);
    }
  }
}

template <class Execution, class Element>
void run_attention_backward_rows(const Execution& execution, const AttentionBackwardQuery<Element>& query) {
  const AttentionShape& shape = query.shape;
  const std::size_t rows = shape.tokens() * shape.heads();
  const std::size_t keys = shape.batch * query.block.keys.rows * shape.kv_heads;
  if (has_lanes<Element>(shape)) {
    run_lanes("sw::d_attn_q", execution, rows, AttentionBackwardQueryLanes<Element>{query});
    run_lanes("sw::d_attn_key", execution, keys, AttentionBackwardKeyLanes<Element>{query});
  } else {
    run("sw::d_attn_q", execution, rows, query);
    run("sw::d_attn_key", execution, keys, AttentionBackwardKey<Element>{query});
  }
}

/// As run_attention_forward.
template <class Execution, class Element, class Out, class Work>
void run_attention_backward(const char* operation, const Execution& execution,
                            const AttentionBackwardQuery<Element, Out>& query, const AttentionBlock& block,
                            const Work& workspace) {
  using Number = MainElement<Element>;
  const AttentionShape& shape = query.shape;
  if (shape.tokens() == 0 || shape.kv_heads == 0 || query.block.keys.rows == 0)
    return;
  if constexpr (counts_only<Execution>) {
    count_attention(3, 2, shape, block); // probabilities are recomputed
  } else if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, shape);
    require_workspace(operation, workspace, workers * AttentionBuffers<Number>::backward_size(shape));
    run("sw::d_attention", execution, workers,
        AttentionBackward<Element, Out>{query.qkv, query.key_values, query.out, query.log_sum_exp,
                                        query.d_out, query.d_qkv, query.d_key_values, shape, block,
                                        query.merge, query.scale, workspace.data(), workers});
  } else {
    if constexpr (may_be_library_attention<Execution, Element, Out>)
      if (run_library_backward(execution, query, block, workspace))
        return;
    require_causal_form(operation, block);
    if constexpr (runs_in_tiles<Element, Execution>({})) {
      if (runs_in_tiles<Element, Execution>(shape)) {
        require_tiles(operation, query.qkv);
        require_tiles(operation, query.key_values.tokens);
        require_tiles(operation, query.out);
        require_tiles(operation, query.d_out);
        require(query.scale > 0, operation, "the scale must be positive on this device.");
        require_workspace(operation, workspace, shape.tokens() * shape.heads());
        float* const dots = workspace.data();
        run_tiles<Execution, AttentionBackwardQueryTiles, Element, Out>(execution, shape, query, dots);
        run_tiles<Execution, AttentionBackwardKeyTiles, Element, Out>(execution, shape, query, dots);
        return;
      }
    }
    if constexpr (sums_apart<Execution, Out>) {
      require_workspace(operation, workspace, shape.tokens() * shape.qkv_width());
      const MatrixSpan<Number> sums{workspace.data(), query.d_qkv.rows, query.d_qkv.columns,
                                    query.d_qkv.columns};
      run_attention_backward_rows<Execution, Element>(
          execution, {query.qkv, query.key_values, query.out, query.log_sum_exp, query.d_out, sums,
                      KeyValueSpan<Number>::fused(sums, shape), shape, query.block, false, query.scale});
      run_lanes("sw::round", execution, sums.rows,
                RoundRows<Out>{sums.data, sums.columns, 0, query.d_qkv.data, query.d_qkv.stride});
    } else {
      run_attention_backward_rows<Execution, Element>(execution, query);
    }
  }
}

} // namespace detail

/// @brief Elements (MainElement) of workspace that attention_forward needs on this instance, for whole
/// sequences under this mask. `Out` is the element of the result.
template <class Element, class Out = Element, class Execution>
[[nodiscard]] std::size_t attention_forward_workspace(const Execution& execution, const AttentionShape& shape,
                                                      const KeyMask& mask = {}) {
  if constexpr (!detail::runs_on_host<Execution>) {
    const std::size_t of_library = detail::library_workspace<Element, Out>(execution, shape, mask, false);
    const bool in_sums = is_narrow<Element> && !detail::runs_in_tiles<Element, Execution>(shape);
    return std::max(of_library, in_sums ? shape.tokens() * shape.output_width() : std::size_t{0});
  } else {
    return detail::attention_workers(execution, shape) *
           detail::AttentionBuffers<MainElement<Element>>::forward_size(shape);
  }
}

/// @brief Elements (MainElement) of workspace that attention_backward needs on this instance, for whole
/// sequences under this mask. `Out` is the element of the gradient.
template <class Element, class Out = Element, class Execution>
[[nodiscard]] std::size_t attention_backward_workspace(const Execution& execution,
                                                       const AttentionShape& shape,
                                                       const KeyMask& mask = {}) {
  if constexpr (!detail::runs_on_host<Execution>) {
    const std::size_t of_library = detail::library_workspace<Element, Out>(execution, shape, mask, true);
    const std::size_t in_sums = is_narrow<Element> ? shape.tokens() * shape.qkv_width() : 0;
    return std::max(of_library, detail::runs_in_tiles<Element, Execution>(shape)
                                    ? shape.tokens() * shape.heads()
                                    : in_sums);
  } else {
    return detail::attention_workers(execution, shape) *
           detail::AttentionBuffers<MainElement<Element>>::backward_size(shape);
  }
}

/// @brief out = softmax(scale Q K' under a mask) V for every head of every sequence; zeros, with a
/// log_sum_exp of -infinity, for a query that sees no key.
///
/// Cost: about 2 (head_dim + value_width) operations for each pair of query and key that the mask shows, by
/// blocks of 32 queries.
/// @param qkv          fused buffer of `shape`
/// @param out          [batch * sequence, heads * value_width], of the element of `qkv` or its MainElement
/// @param log_sum_exp  MainElement [batch * heads * sequence], sequence fastest; written for the backward
/// pass
/// @param block        the positions of the tokens, which are queries and keys, and the mask
/// @param scale        usually 1 / sqrt(head_dim)
/// @param workspace    [attention_forward_workspace] elements
/// @throws InvalidArgument for a mask that is neither causal nor full where the kernels run on a device, but
/// for causal windows of 16-bit elements with cuDNN.
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelVector Work>
void attention_forward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                       const AttentionShape& shape, const AttentionBlock& block, double scale,
                       const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename Out::value_type;
  constexpr const char* operation = "attention_forward";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_own_keys(operation, shape, block);
  const auto input = detail::constant(detail::span_of(qkv));
  detail::run_attention_forward<Execution, Element, Sum>(
      operation, execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape), detail::span_of(out),
       log_sum_exp.data(), shape, block.causal_form(), false, static_cast<MainElement<Element>>(scale)},
      block, workspace);
}

/// @brief Causal attention over whole sequences.
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelVector Work>
void attention_forward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                       const AttentionShape& shape, double scale, const Work& workspace) {
  attention_forward(execution, qkv, out, log_sum_exp, shape, AttentionBlock::whole(shape.sequence), scale,
                    workspace);
}

/// @brief The same queries over the keys and values of other tokens: `out` and `log_sum_exp` become those
/// over all keys so far.
///
/// Queries that see none of these keep theirs. Blocks may come in any order, each once, after
/// attention_forward over the queries' own tokens. `out` is of the MainElement.
/// @param key_values  [batch * keys, kv_heads * key_value_width], as pack_key_values makes it
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelVector Work>
void attention_forward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                             const Out& out, const Lse& log_sum_exp, const AttentionShape& shape,
                             const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename Out::value_type;
  static_assert(std::is_same_v<Sum, MainElement<Element>>,
                "attention_forward_block: the sums over blocks of keys must be of the MainElement.");
  constexpr const char* operation = "attention_forward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  const auto keys = detail::constant(detail::span_of(key_values));
  detail::run_attention_forward<Execution, Element, Sum>(
      operation, execution,
      {detail::constant(detail::span_of(qkv)), detail::KeyValueSpan<const Element>::packed(keys, shape),
       detail::span_of(out), log_sum_exp.data(), shape, block.causal_form(), true,
       static_cast<MainElement<Element>>(scale)},
      block, workspace);
}

/// @brief d_qkv from the forward pass's buffers and d_out; probabilities are recomputed, not stored.
///
/// Cost: about 6 head_dim + 4 value_width operations for each pair of query and key that the mask shows. Sums
/// run in a fixed order.
/// @param qkv          fused buffer, as in the forward pass
/// @param out          output of the forward pass
/// @param log_sum_exp  from the forward pass
/// @param d_out        [batch * sequence, heads * value_width]
/// @param d_qkv        as qkv, or of its MainElement; all of it is written
/// @param block        as in the forward pass
/// @param workspace    [attention_backward_workspace] elements
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelMatrix DOut,
          KernelMatrix DQkv, KernelVector Work>
void attention_backward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                        const DOut& d_out, const DQkv& d_qkv, const AttentionShape& shape,
                        const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  constexpr const char* operation = "attention_backward";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  detail::require_own_keys(operation, shape, block);
  const auto input = detail::constant(detail::span_of(qkv));
  const auto gradient = detail::span_of(d_qkv);
  detail::run_attention_backward<Execution, Element, Sum>(
      operation, execution,
      {input, detail::KeyValueSpan<const Element>::fused(input, shape),
       detail::constant(detail::span_of(out)), log_sum_exp.data(), detail::constant(detail::span_of(d_out)),
       gradient, detail::KeyValueSpan<Sum>::fused(gradient, shape), shape, block.causal_form(), false,
       static_cast<MainElement<Element>>(scale)},
      block, workspace);
}

/// @brief The gradient of causal attention over whole sequences.
template <class Execution, KernelMatrix Qkv, KernelMatrix Out, KernelVector Lse, KernelMatrix DOut,
          KernelMatrix DQkv, KernelVector Work>
void attention_backward(const Execution& execution, const Qkv& qkv, const Out& out, const Lse& log_sum_exp,
                        const DOut& d_out, const DQkv& d_qkv, const AttentionShape& shape, double scale,
                        const Work& workspace) {
  attention_backward(execution, qkv, out, log_sum_exp, d_out, d_qkv, shape,
                     AttentionBlock::whole(shape.sequence), scale, workspace);
}

/// @brief Adds the gradient from a block of other tokens' keys and values to the queries' part of `d_qkv`,
/// and writes the gradients of these keys and values.
///
/// @param out, log_sum_exp     of all blocks
/// @param d_qkv, d_key_values  MainElement, as qkv and key_values; all of d_key_values is written
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out, KernelVector Lse,
          KernelMatrix DOut, KernelMatrix DQkv, KernelMatrix DKeyValues, KernelVector Work>
void attention_backward_block(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                              const Out& out, const Lse& log_sum_exp, const DOut& d_out, const DQkv& d_qkv,
                              const DKeyValues& d_key_values, const AttentionShape& shape,
                              const AttentionBlock& block, double scale, const Work& workspace) {
  using Element = typename Qkv::non_const_value_type;
  using Sum = typename DQkv::value_type;
  static_assert(std::is_same_v<Sum, MainElement<Element>>,
                "attention_backward_block: the sums over blocks of keys must be of the MainElement.");
  constexpr const char* operation = "attention_backward_block";
  detail::require_attention(operation, shape, qkv, out, log_sum_exp);
  detail::require_attention(operation, shape, d_qkv, d_out, log_sum_exp);
  detail::require_block(operation, shape, block, key_values);
  detail::require_block(operation, shape, block, d_key_values);
  const auto keys = detail::constant(detail::span_of(key_values));
  detail::run_attention_backward<Execution, Element, Sum>(
      operation, execution,
      {detail::constant(detail::span_of(qkv)), detail::KeyValueSpan<const Element>::packed(keys, shape),
       detail::constant(detail::span_of(out)), log_sum_exp.data(), detail::constant(detail::span_of(d_out)),
       detail::span_of(d_qkv), detail::KeyValueSpan<Sum>::packed(detail::span_of(d_key_values), shape), shape,
       block.causal_form(), true, static_cast<MainElement<Element>>(scale)},
      block, workspace);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
