// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A microbatch of token ids with their targets.

#include <shardwright/nn/token_tensor.hpp>
#include <shardwright/train/batch_origin.hpp>

#include <cstdint>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Ids and targets, [batch, sequence], in the order that attention requires; a negative target does
/// not count.
template <TokenOrder Order, LayoutType L, class Target = DefaultTarget>
struct TokenBatch {
  using Ids = TokenTensor<Order, L, std::int32_t, Target>;
  typename Ids::Handle ids, targets;
  std::optional<BatchOrigin>
      origin{}; ///< Keys dropout masks; a constant origin would drop the same elements in every step.

  /// @brief Returns the positions of this rank's rows in their sequences.
  [[nodiscard]] TokenRuns runs() const { return ids.positions().runs(); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
