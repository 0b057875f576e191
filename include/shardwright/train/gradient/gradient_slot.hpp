// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Where the passes of an operation add the gradient of a parameter.

#include <shardwright/core/fixed_point.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The destination of a raw gradient: `tensor = beta * tensor + gradient`.
template <class Raw, class Factor> struct GradientSlot {
  Raw& tensor;
  Factor beta;
};
/// The same for sums of FixedPoint terms; a `beta` is 0 or 1.
template <LayoutType L, class Target, class Factor>
struct GradientSlot<ShardedTensor<L, FixedPoint, Target>, Factor> {
  ShardedTensor<L, FixedPoint, Target>& tensor;
  Factor beta;
  bool* fault; ///< In host memory: kernels set it if a term does not fit.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
