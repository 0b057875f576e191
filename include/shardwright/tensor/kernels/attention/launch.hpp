// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of the arguments of attention, and the choice of kernels: by blocks on a host; by the
/// library, tiles or, where neither applies, rows on a device.

#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/tensor/kernels/attention/device.hpp>
#include <shardwright/tensor/kernels/attention/host_backward.hpp>
#include <shardwright/tensor/kernels/attention/library.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/tiles.hpp>
#include <shardwright/tensor/kernels/attention/tiles_backward.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes/narrow_rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

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
  require_qkv(operation, shape, qkv);
  require_output(operation, shape, out);
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

/// Whether a launch uses tiles on tensor cores; in a dry run, whether it would.
template <class Element, class Execution>
[[nodiscard]] constexpr bool runs_in_tiles(const AttentionShape& shape) {
  if constexpr (counts_only<Execution>)
    return runs_in_tiles<Element, typename Execution::counts_for>(shape);
  else
    return BlockLauncher<Execution>::available && is_narrow<Element> && has_tiles(shape);
}

template <class Element> void require_tiles(const char* operation, const MatrixSpan<Element>& rows) {
  require(is_tile_aligned(rows), operation,
          "rows must begin at multiples of 16 bytes on this device (use contiguous buffers).");
}

template <class Execution, template <class, class, int, class> class Tiles, class Element, class Out,
          class Form, class... More>
void run_tiles(const Execution& execution, const AttentionShape& shape, const auto& members, More... more) {
  const auto start = [&](const auto& functor) {
    BlockLauncher<Execution>::run(execution, functor.blocks(), functor.shared_bytes, functor);
  };
  if (shape.head_dim <= 64)
    start(Tiles<Element, Out, 64, Form>{members, more...});
  else
    start(Tiles<Element, Out, 128, Form>{members, more...});
}

/// Rejects the masks that the tiles and rows of a device do not support.
inline void require_device_form(const char* operation, const AttentionBlock& block) {
  require(
      block.mask.has_device_form(), operation,
      "on a device the mask must have no key lengths, and documents must be in the order of their text (make padding a document, or attend on a host).");
}

/// Whether a kernel gives the gradients of queries and another, which reads most arguments again, those of
/// keys and values; in a dry run, whether they would.
template <class Execution> [[nodiscard]] constexpr bool has_key_kernel() {
  if constexpr (counts_only<Execution>)
    return has_key_kernel<typename Execution::counts_for>();
  else
    return !runs_on_host<Execution>;
}

/// What attention moves: queries, keys, values, results and sums once each; the gradient reads all of them
/// and the result's gradient, and writes those of the first three. `merged` results and gradients are read,
/// too.
template <class Element, class Out, class Execution>
[[nodiscard]] std::size_t attention_bytes(bool backward, bool merged, const AttentionShape& shape,
                                          const AttentionBlock& block) {
  const std::size_t queries = shape.tokens() * shape.heads() * shape.head_dim;
  const std::size_t keys = shape.batch * block.keys.rows * shape.kv_heads * shape.key_value_width();
  const std::size_t results = shape.tokens() * shape.output_width();
  const std::size_t sums = shape.tokens() * shape.heads() * sizeof(AccumulationElement<Element>);
  const std::size_t stores = merged ? 2 : 1;
  if (backward) {
    const std::size_t again = runs_in_tiles<Element, Execution>(shape) ? results : 2 * results;
    const std::size_t for_keys =
        has_key_kernel<Execution>() ? (queries + keys + again) * sizeof(Element) + sums : 0;
    return (queries + keys + 2 * results) * sizeof(Element) + sums + (stores * queries + keys) * sizeof(Out) +
           for_keys;
  }
  return (queries + keys) * sizeof(Element) + stores * (results * sizeof(Out) + sums);
}

/// States what attention moves.
template <class Element, class Out, class Execution>
void attention_moves(const Execution& execution, bool backward, bool merged, const AttentionShape& shape,
                     const AttentionBlock& block) {
  moves(backward ? "sw::d_attention" : "sw::attention", execution,
        attention_bytes<Element, Out, Execution>(backward, merged, shape, block));
}

/// Counts the operations for a dry run, which knows no lengths: for each head and visible pair, two per
/// element of a key and of a value, times the number of products with each.
inline void count_attention(std::size_t key_products, std::size_t value_products, const AttentionShape& shape,
                            const AttentionBlock& block) {
  const std::size_t of_a_pair = 2 * (key_products * shape.head_dim + value_products * shape.value_width());
  shardwright::detail::count_flops(static_cast<double>(of_a_pair * shape.batch * shape.heads()) *
                                   static_cast<double>(block.pairs()));
}

/// Starts the library's own kernels of a device.
template <class Execution, class Element, class Out, class Form, class Work>
void run_device_forward(const char* operation, const Execution& execution,
                        const AttentionForwardRow<Element, Out, Form>& row, const Work& workspace) {
  using Number = AccumulationElement<Element>;
  const AttentionShape& shape = row.shape;
  if constexpr (runs_in_tiles<Element, Execution>({})) {
    if (runs_in_tiles<Element, Execution>(shape)) {
      require(row.scale > 0, operation, "the scale must be positive on this device.");
      require_tiles(operation, row.qkv);
      require_tiles(operation, row.key_values.tokens);
      require_tiles(operation, row.out);
      attention_moves<Element, Out>(execution, false, row.merge, shape, row.block);
      run_tiles<Execution, AttentionForwardTiles, Element, Out, Form>(execution, shape, row);
      return;
    }
  }
  attention_moves<Element, Out>(execution, false, row.merge, shape, row.block);
  if constexpr (sums_apart<Execution, Out>) {
    require_workspace(operation, workspace, shape.tokens() * shape.output_width());
    const MatrixSpan<Number> sums{workspace.data(), row.out.rows, row.out.columns, row.out.columns};
    run("sw::attention", execution, shape.tokens() * shape.heads(),
        AttentionForwardRow<Element, Number, Form>{row.qkv, row.key_values, sums, row.log_sum_exp, shape,
                                                   row.block, false, row.scale});
    run_lanes("sw::round", execution, sums.rows,
              RoundRows<Out>{sums.data, sums.columns, 0, row.out.data, row.out.stride});
  } else {
    run("sw::attention", execution, shape.tokens() * shape.heads(), row);
  }
}

template <class Execution, class Element, class Out, class Work>
void run_attention_forward(const char* operation, const Execution& execution,
                           const AttentionForwardRow<Element, Out, AttentionBlock>& row,
                           const Work& workspace) {
  using Number = AccumulationElement<Element>;
  const AttentionShape& shape = row.shape;
  if (shape.tokens() == 0 || shape.kv_heads == 0 || (row.merge && row.block.hides_all_keys()))
    return;
  if constexpr (counts_only<Execution>) {
    count_attention(1, 1, shape, row.block);
    attention_moves<Element, Out>(execution, false, row.merge, shape, row.block);
  } else if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, shape);
    require_workspace(operation, workspace,
                      workers * AttentionBuffers<Number>::size(shape, row.block.keys.rows, 0));
    run("sw::attention", execution, workers, AttentionForward<Element, Out>{row, workspace.data(), workers});
  } else {
    if constexpr (may_be_library_attention<Execution, Element, Out>)
      if (run_library_forward(execution, row, workspace))
        return;
    require_device_form(operation, row.block);
    if (row.block.mask.has_causal_form())
      run_device_forward(operation, execution, row.with(row.block.causal_form()), workspace);
    else
      run_device_forward(operation, execution, row, workspace);
  }
}

template <class Execution, class Element, class Form>
void run_attention_backward_rows(
    const Execution& execution,
    const AttentionBackwardQuery<Element, AccumulationElement<Element>, Form>& query) {
  const AttentionShape& shape = query.shape;
  run("sw::d_attn_q", execution, shape.tokens() * shape.heads(), query);
  run("sw::d_attn_key", execution, shape.batch * query.block.keys.rows * shape.kv_heads,
      AttentionBackwardKey<Element, Form>{query});
}

/// As run_device_forward. Returns whether the rotation of `query` has been undone.
template <class Execution, class Element, class Out, class Form, class Work>
bool run_device_backward(const char* operation, const Execution& execution,
                         const AttentionBackwardQuery<Element, Out, Form>& query, const Work& workspace) {
  using Number = AccumulationElement<Element>;
  const AttentionShape& shape = query.shape;
  if constexpr (runs_in_tiles<Element, Execution>({})) {
    if (runs_in_tiles<Element, Execution>(shape)) {
      require_tiles(operation, query.qkv);
      require_tiles(operation, query.key_values.tokens);
      require_tiles(operation, query.out);
      require_tiles(operation, query.d_out);
      require_tiles(operation, query.d_qkv);
      require_tiles(operation, query.d_key_values.tokens);
      require(query.scale > 0, operation, "the scale must be positive on this device.");
      require_workspace(operation, workspace, shape.tokens() * shape.heads());
      float* const dots = workspace.data();
      AttentionBackwardQuery<Element, Out, Form> members = query;
      if (!tiles_undo(shape) || !is_tile_aligned(query.undone.cosines) ||
          !is_tile_aligned(query.undone.sines))
        members.undone = {};
      attention_moves<Element, Out>(execution, true, query.merge, shape, query.block);
      run_tiles<Execution, AttentionBackwardQueryTiles, Element, Out, Form>(execution, shape, members, dots);
      run_tiles<Execution, AttentionBackwardKeyTiles, Element, Out, Form>(execution, shape, members, dots);
      return members.undone.turns();
    }
  }
  attention_moves<Element, Out>(execution, true, query.merge, shape, query.block);
  if constexpr (sums_apart<Execution, Out>) {
    require_workspace(operation, workspace, shape.tokens() * shape.qkv_width());
    const MatrixSpan<Number> sums{workspace.data(), query.d_qkv.rows, query.d_qkv.columns,
                                  query.d_qkv.columns};
    run_attention_backward_rows<Execution, Element, Form>(
        execution, {query.qkv, query.key_values, query.out, query.log_sum_exp, query.d_out, sums,
                    KeyValueSpan<Number>::fused(sums, shape), shape, query.block, false, query.scale});
    run_lanes("sw::round", execution, sums.rows,
              RoundRows<Out>{sums.data, sums.columns, 0, query.d_qkv.data, query.d_qkv.stride});
  } else {
    run_attention_backward_rows<Execution, Element, Form>(execution, query);
  }
  return false;
}

/// As run_attention_forward. Returns whether the rotation of `query` has been undone. `in_leaves` is for
/// hosts: see AttentionBackward.
template <class Execution, class Element, class Out, bool in_leaves = false, class Work>
bool run_attention_backward(const char* operation, const Execution& execution,
                            const AttentionBackwardQuery<Element, Out, AttentionBlock>& query,
                            const Work& workspace) {
  using Number = AccumulationElement<Element>;
  const AttentionShape& shape = query.shape;
  if (shape.tokens() == 0 || shape.kv_heads == 0 || query.block.keys.rows == 0)
    return false;
  if constexpr (counts_only<Execution>) {
    count_attention(3, 2, shape, query.block); // probabilities are recomputed
    attention_moves<Element, Out>(execution, true, query.merge, shape, query.block);
    return query.undone.turns() && runs_in_tiles<Element, Execution>(shape) && tiles_undo(shape) &&
           (query.merge || !library_need<Element, Out>(execution, shape, query.block, true));
  } else if constexpr (runs_on_host<Execution>) {
    const std::size_t workers = attention_workers(execution, shape);
    const std::size_t sums = in_leaves ? QueryLeaves(query.block).sums() : 1;
    require_workspace(operation, workspace,
                      workers * AttentionBuffers<Number>::size(shape, query.block.keys.rows, sums));
    run("sw::d_attention", execution, workers,
        AttentionBackward<Element, Out, in_leaves>{query, workspace.data(), workers});
  } else {
    if constexpr (may_be_library_attention<Execution, Element, Out>)
      if (run_library_backward(execution, query, workspace))
        return false;
    require_device_form(operation, query.block);
    return query.block.mask.has_causal_form()
               ? run_device_backward(operation, execution, query.with(query.block.causal_form()), workspace)
               : run_device_backward(operation, execution, query, workspace);
  }
  return false;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
