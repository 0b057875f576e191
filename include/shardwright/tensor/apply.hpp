// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A common entry point for operations on tensors and on values of a tape.

#include <shardwright/core/source_location.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An argument of a typed operation: a sharded tensor, or a value on a tape (train/var.hpp), such a
/// value read in another layout, or a parameter.
template <class Type>
concept Operand = AnyShardedTensor<Type> || requires {
  typename std::remove_cvref_t<Type>::tape_operand;
};

namespace detail {

/// The operands that the gradient of one of two operands reads.
struct GradientReads {
  bool left = false;
  bool right = false;
};

} // namespace detail

/// @brief Executes an operation on tensors. For values of a tape, an overload also records the operation
/// (train/operation_node.hpp); it is found by argument-dependent lookup, so call it without a namespace.
template <class Operation, AnyShardedTensor... Tensors>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, const Tensors&... tensors) {
  return operation.forward(where, tensors...);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
