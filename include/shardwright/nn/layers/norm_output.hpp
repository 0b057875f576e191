// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The results of norms.

#include <shardwright/tensor/sharded_tensor.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A normalised tensor, with the statistics for its gradient.
template <AnyShardedTensor Normed, class Statistics> struct NormOutput {
  Normed normed;
  Statistics statistics;
};

/// @brief NormOutput with the sum that was normalised.
template <AnyShardedTensor Normed, class Statistics> struct AddNormOutput {
  Normed sum;
  Normed normed;
  Statistics statistics;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
