// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Placements: Shard, Replicate and Partial, and the reductions that complete a Partial.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/layout/axis.hpp>

#include <concepts>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The value is the sum of the ranks' parts.
struct Sum {
  static constexpr ReduceOp value = ReduceOp::sum;
};
/// @brief The value is the sum of the ranks' parts, divided once by their number.
struct Avg {
  static constexpr ReduceOp value = ReduceOp::average;
};
/// @brief The value is the product of the ranks' parts.
struct Product {
  static constexpr ReduceOp value = ReduceOp::product;
};
/// @brief The value is the elementwise maximum of the ranks' parts.
struct Max {
  static constexpr ReduceOp value = ReduceOp::maximum;
};
/// @brief The value is the elementwise minimum of the ranks' parts.
struct Min {
  static constexpr ReduceOp value = ReduceOp::minimum;
};

/// @brief The value is the exact sum of all terms of all ranks, rounded once: its bits depend neither on the
/// mesh nor on the order. The elements are ExactSum.
struct OrderedSum {
  static constexpr ReduceOp value = ReduceOp::ordered_sum;
};

/// @brief A reduction that adds: Sum, or OrderedSum.
template <class Op>
concept Summation = std::same_as<Op, Sum> || std::same_as<Op, OrderedSum>;

/// @brief A reduction that completes a Partial: Sum, Avg, Product, Max, Min or OrderedSum.
template <class Op>
concept Reduction = Summation<Op> || std::same_as<Op, Avg> || std::same_as<Op, Product> ||
    std::same_as<Op, Max> || std::same_as<Op, Min>;

/// @brief Dimension `dimension` is split over the axes in order, major to minor, by the ceil-chunk rule. A
/// Halo may follow the axes.
template <int dimension, class... Axes> struct Shard {};

/// @brief Follows the axes of a Shard, as in `Shard<0, x, Halo<1>>`: every block carries copies of the
/// `before` elements before it and of the `after` elements after it, from its neighbours.
///
/// Elements beyond the ends of the tensor belong to the program (boundary values), and are 0 after
/// redistribute.
template <int before, int after = before> struct Halo {};

/// @brief A Halo of a periodic dimension: its last element precedes its first.
template <int before, int after = before> struct PeriodicHalo {};

/// @brief Every rank along the axes holds the whole; the same as not naming them.
template <class... Axes> struct Replicate {};

/// @brief A pending reduction: combining the ranks' parts along the axes with `Op` gives the value.
template <class Op, class... Axes> struct Partial {};

namespace detail {

/// The tag for a run-time reduction operation.
template <ReduceOp op>
using ReductionTag = std::conditional_t<
    op == ReduceOp::sum, Sum,
    std::conditional_t<op == ReduceOp::average, Avg,
                       std::conditional_t<op == ReduceOp::product, Product,
                                          std::conditional_t<op == ReduceOp::maximum, Max,
                                                             std::conditional_t<op == ReduceOp::minimum, Min,
                                                                                OrderedSum>>>>>;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
