// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A common entry point for operations on tensors and on values of a tape.

#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An argument of a typed operation: a sharded tensor; a value on a tape (train/tape/var.hpp), read in
/// its own layout or in another one; or a parameter.
template <class Type>
concept Operand = AnyShardedTensor<Type> || requires {
  typename std::remove_cvref_t<Type>::tape_operand;
};

/// @brief The values that a gradient reads: the first operand, the second one, those after it, the result. An
/// operation declares them, and others may be released before its gradient is computed.
struct GradientReads {
  bool left = false;
  bool right = false;
  bool others = false;
  bool result = false;

  /// @brief Whether it reads the operand with this index.
  [[nodiscard]] constexpr bool operand(std::size_t index) const noexcept {
    return index == 0 ? left : index == 1 ? right : others;
  }
};

namespace detail {

/// An operation that numbers of the program change: `numbers()` returns those that must be equal on all
/// ranks, except along the axes that split the operand, or those of `differs_along`.
template <class Operation>
concept HasNumbers = requires(const Operation& operation) {
  operation.numbers();
};

/// Compares the numbers of an operation on a tensor of layout `L`. Collective over the mesh.
template <class L, class Operation>
void compare_numbers(const Operation& operation, const MeshCore& core, SourceLocation where) {
  if constexpr (requires { Operation::differs_along; })
    require_agreement(core, Operation::name, operation.numbers(), Operation::differs_along, where);
  else if constexpr (HasNumbers<Operation>)
    require_agreement(core, Operation::name, operation.numbers(), SplittingAxes<L>::names, where);
}

template <class Operation, class First, class... Others>
void compare_numbers_beside(const Operation& operation, SourceLocation where, const First& first,
                            const Others&...) {
  compare_numbers<typename First::layout>(operation, first.core(), where);
}

} // namespace detail

/// @brief Executes an operation on tensors. For values of a tape, an overload also records the operation
/// (train/tape/operation_node.hpp); it is found by argument-dependent lookup, so call it without a namespace.
template <class Operation, AnyShardedTensor... Tensors>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, const Tensors&... tensors) {
  detail::begin_operation(where, tensors...);
  if constexpr (always_checked)
    detail::compare_numbers_beside(operation, where, tensors...);
  return operation.forward(where, tensors...);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
