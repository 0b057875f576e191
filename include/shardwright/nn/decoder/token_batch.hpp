// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A microbatch of token ids with their targets, and the mask that keeps its documents apart.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/train/step/batch_origin.hpp>

#include <cstdint>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Ids and targets, [batch, sequence], in the order that attention requires; a negative target does
/// not count.
/// @tparam Mask of attention: CausalMask, or a DocumentsMask if sequences may hold several documents
template <TokenOrder Order, LayoutType L, class Target = DefaultTarget, AttentionMask Mask = CausalMask>
struct TokenBatch {
  using Ids = TokenTensor<Order, L, std::int32_t, Target>;
  typename Ids::Handle ids, targets;
  std::optional<BatchOrigin>
      origin{}; ///< Keys dropout masks; a constant origin would drop the same elements in every step.
  Mask mask{};

  /// @brief Sequences of the microbatch, on all ranks.
  [[nodiscard]] std::uint64_t sequences() const { return static_cast<std::uint64_t>(ids.shape()[0]); }
  /// @brief Positions of the rows of whole sequences.
  [[nodiscard]] RowOrder row_order() const { return ids.row_order(); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
