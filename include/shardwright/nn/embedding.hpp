// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Token embedding from a table that may be sharded over the vocabulary.

#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/nn/rms_norm.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief out[..., :] = table[ids[...], :]; Partial<Sum> over the axes that shard the vocabulary, since each
/// rank knows only its own words.
/// @param ids int32, within [0, vocabulary) @param table [vocabulary, width]
template <LayoutType I, class Id, class Target, LayoutType T, class E>
[[nodiscard]] auto embed(const ShardedTensor<I, Id, Target>& ids, const ShardedTensor<T, E, Target>& table) {
  constexpr std::size_t rank = I::tensor_rank;
  std::array<std::int64_t, rank + 1> shape{};
  for (std::size_t d = 0; d < rank; ++d)
    shape[d] = ids.shape()[d];
  shape[rank] = table.shape()[1];
  ShardedTensor<EmbeddingLayout<I, T>, std::remove_const_t<E>, Target> out(table.resources(), shape);
  kernels::embedding_forward(table.execution(), detail::flat(ids), table.local_matrix(),
                             table.local_offset()[0], out.mutable_local_matrix());
  return out;
}

/// @brief Adds the table's gradient, tokens in order, to `slot`.
template <LayoutType I, class Id, class Target, class OutGradient, class Slot>
void embed_weight_gradient(const ShardedTensor<I, Id, Target>& ids, const OutGradient& gradient,
                           const Slot& slot) {
  const std::int64_t first = slot.tensor.local_offset()[0];
  kernels::embedding_backward(gradient.execution(), detail::flat(ids), gradient.local_matrix(), first,
                              slot.tensor.mutable_local_matrix(), slot.beta != 0);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
