// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Nonlinear operations as tags that carry their own error sentences.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/propagation.hpp>

#include <string_view>

/// Declares the tag of a nonlinear operation; its error sentences, which must be literals, begin with the
/// name.
#define SHARDWRIGHT_NONLINEAR_OPERATION(NAME)                                                                \
  struct NAME {                                                                                              \
    static constexpr std::string_view name = #NAME;                                                          \
    template <class Axis, ::shardwright::PropagationFault fault> struct Over {                               \
      static_assert(fault != ::shardwright::PropagationFault::partial,                                       \
                    #NAME ": the input must not be Partial, an incomplete sum (redistribute it first)");     \
      static_assert(fault != ::shardwright::PropagationFault::row_sharded,                                   \
                    #NAME ": the last dimension must not be sharded (redistribute the input to gather it)"); \
    };                                                                                                       \
  }

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Tags of the library's nonlinear operations; programs add theirs with the same macro.
namespace operation {

SHARDWRIGHT_NONLINEAR_OPERATION(swiglu);
SHARDWRIGHT_NONLINEAR_OPERATION(softmax);
SHARDWRIGHT_NONLINEAR_OPERATION(log_softmax);
SHARDWRIGHT_NONLINEAR_OPERATION(rms_norm);
SHARDWRIGHT_NONLINEAR_OPERATION(layer_norm);
SHARDWRIGHT_NONLINEAR_OPERATION(attention);
SHARDWRIGHT_NONLINEAR_OPERATION(cross_entropy);
SHARDWRIGHT_NONLINEAR_OPERATION(mse);
SHARDWRIGHT_NONLINEAR_OPERATION(route);
SHARDWRIGHT_NONLINEAR_OPERATION(balance_loss);
SHARDWRIGHT_NONLINEAR_OPERATION(router_z_loss);
SHARDWRIGHT_NONLINEAR_OPERATION(adamw);

} // namespace operation

} // namespace shardwright::inline SHARDWRIGHT_ABI
