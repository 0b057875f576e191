// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How many elements of a rank's block are infinite or NaN.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/scalars.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Reads the block once and waits for it.
template <AnyShardedTensor Tensor>
[[nodiscard]] std::int64_t non_finite_elements(const Tensor& tensor) {
  using Target = typename Tensor::target;
  Scalars<1, Target> found(tensor.resources());
  ShardedTensor<Layout<1>, double, Target> workspace(
      tensor.resources(), {static_cast<std::int64_t>(kernels::reduce_workspace(tensor.local_size()))});
  kernels::count_nonfinite(tensor.execution(), tensor.local_matrix(), found.view(),
                           workspace.mutable_local());
  return static_cast<std::int64_t>(found.read()[0]);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
