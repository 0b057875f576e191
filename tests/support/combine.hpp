// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The reduction of two ranks' values, by definition.

#include <shardwright/core/element.hpp>

#include <algorithm>

namespace test_support {

/// @brief An average is a sum that the caller divides in the end.
inline double combine(shardwright::ReduceOp op, double left, double right) {
  switch (op) {
  case shardwright::ReduceOp::sum:
  case shardwright::ReduceOp::average:
  case shardwright::ReduceOp::ordered_sum:
    return left + right;
  case shardwright::ReduceOp::product:
    return left * right;
  case shardwright::ReduceOp::maximum:
    return std::max(left, right);
  case shardwright::ReduceOp::minimum:
    return std::min(left, right);
  }
  return 0;
}

} // namespace test_support
