// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention by the library of an execution space: whether it supports a launch, the memory that it
/// needs, and its calls.

#include <shardwright/tensor/kernels/attention/device.hpp>
#include <shardwright/tensor/kernels/attention/problem.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes/thread.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && defined(SHARDWRIGHT_WITH_CUDNN)
#include <shardwright/tensor/kernels/attention/cuda_dnn.hpp>
#endif

#include <cstddef>
#include <optional>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Tiles and the library move 16 bytes at a time.
template <class Element> [[nodiscard]] bool is_tile_aligned(const MatrixSpan<Element>& rows) {
  return starts_at_16_bytes(rows.data) && rows.stride * sizeof(Element) % 16 == 0;
}

/// Whether the library may compute a launch: its elements and sums have 16 bits, which means that no other
/// block adds to them.
template <class Execution, class Element, class Out>
inline constexpr bool may_be_library_attention =
    LibraryAttention<Execution>::available&& is_narrow<Element>&& std::is_same_v<Element, Out>;

/// Starts the library's forward pass; false if it has no kernel for the launch.
template <class Execution, class Element, class Work>
[[nodiscard]] bool run_library_forward(const Execution& execution,
                                       const AttentionForwardRow<Element, Element, AttentionBlock>& row,
                                       const Work& workspace) {
  const Element* const queries = row.qkv.data;
  if (row.merge || !is_tile_aligned(row.qkv) || !is_tile_aligned(row.out) ||
      !starts_at_16_bytes(row.log_sum_exp))
    return false;
  const auto calls =
      library_calls<Element>(row.shape, row.block, {row.qkv.stride, row.out.stride, 0, 0}, false);
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

/// The same for the gradient.
template <class Execution, class Element, class Work>
[[nodiscard]] bool run_library_backward(const Execution& execution,
                                        const AttentionBackwardQuery<Element, Element, AttentionBlock>& query,
                                        const Work& workspace) {
  if (query.merge || !is_tile_aligned(query.qkv) || !is_tile_aligned(query.out) ||
      !is_tile_aligned(query.d_out) || !is_tile_aligned(query.d_qkv) ||
      !starts_at_16_bytes(query.log_sum_exp))
    return false;
  const auto calls = library_calls<Element>(
      query.shape, query.block, {query.qkv.stride, query.out.stride, query.d_out.stride, query.d_qkv.stride},
      true);
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

/// Bytes of workspace that the library needs with contiguous buffers; nothing if it has no kernel. A dry run
/// asks the library of the execution space that it counts for.
template <class Element, class Out, class Execution>
[[nodiscard]] std::optional<std::size_t> library_need(const Execution& execution, const AttentionShape& shape,
                                                      const AttentionBlock& block, bool backward) {
  if constexpr (counts_only<Execution>) {
    using Counted = typename Execution::counts_for;
    if constexpr (may_be_library_attention<Counted, Element, Out>)
      return library_need<Element, Out>(Counted(), shape, block, backward);
    else
      return std::nullopt;
  } else if constexpr (may_be_library_attention<Execution, Element, Out>) {
    if (shape.tokens() == 0 || shape.kv_heads == 0)
      return std::nullopt;
    const auto calls =
        library_calls<Element>(shape, block, AttentionRows::contiguous(shape, backward), backward);
    return calls ? LibraryAttention<Execution>::plans(execution).workspace(calls->problem) : std::nullopt;
  } else {
    return std::nullopt;
  }
}

/// Floats of workspace that the library needs for whole sequences; 0 if it has no kernel.
template <class Element, class Out, class Execution>
[[nodiscard]] std::size_t library_workspace(const Execution& execution, const AttentionShape& shape,
                                            const KeyMask& mask, bool backward) {
  const auto bytes =
      library_need<Element, Out>(execution, shape, AttentionBlock::whole(shape.sequence, mask), backward);
  return (bytes.value_or(0) + sizeof(float) - 1) / sizeof(float);
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
