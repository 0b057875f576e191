// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The properties that all parameters of a model share.

#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/target.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The element of weights and activations, the ZeRO stage and the target.
template <class Element = float, class Zero = DataParallel, class Target = DefaultTarget> struct ModelPlan {
  using element = Element;
  using zero = typename detail::FormOf<Zero>::Whole; ///< Of tables, gains, biases and routers.
  using matrix_zero = Zero; ///< Of the matrices of linear layers, which may be quantized.
  using target = Target;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
