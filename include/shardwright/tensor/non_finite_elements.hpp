// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The number of infinite or NaN elements in a rank's block.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Reads a block once and waits for it.
template <class Element, class Target>
[[nodiscard]] std::int64_t non_finite_elements(TargetResources<Target>& resources,
                                               const VectorView<const Element, Target>& block) {
  Scalars<1, Target> found(resources);
  auto workspace = workspace_of<double>(resources, kernels::reduce_workspace(block.size()));
  kernels::count_nonfinite(resources.execution(), block, found.view(), workspace.mutable_local());
  return static_cast<std::int64_t>(found.read()[0]);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
