// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Operations of a value on a tape with a constant tensor, such as a mask, loss weights or frozen
/// weights.

#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/leaf_node.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Executes an operation on a value of a tape and a tensor, which becomes an input of the tape: it
/// shares its memory, which must not be written until the last gradient.
template <class Operation, detail::TapeValue Left, AnyShardedTensor Right>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, Left&& left, const Right& right) {
  auto constant = detail::leaf_on(left.tape(), right.share(), false, where);
  return apply(operation, where, std::forward<Left>(left), std::move(constant));
}
template <class Operation, AnyShardedTensor Left, detail::TapeValue Right>
[[nodiscard]] auto apply(const Operation& operation, SourceLocation where, const Left& left, Right&& right) {
  auto constant = detail::leaf_on(right.tape(), left.share(), false, where);
  return apply(operation, where, std::move(constant), std::forward<Right>(right));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
