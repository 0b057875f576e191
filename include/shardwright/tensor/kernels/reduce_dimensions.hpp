// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums, products and extremes of a block over one dimension, or over all, in fixed order.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Sums of floating-point elements run in double precision.
template <class Element> using AccumulatorOf = std::conditional_t<RealElement<Element>, double, Element>;

template <ReduceOp op, class Accumulator> constexpr Accumulator neutral_element() {
  using Limits = std::numeric_limits<Accumulator>;
  if constexpr (op == ReduceOp::product)
    return 1;
  else if constexpr (op == ReduceOp::maximum)
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  else if constexpr (op == ReduceOp::minimum)
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  else
    return 0;
}

/// A constant, because kernels on a device cannot call the functions of std::numeric_limits.
template <ReduceOp op, class Element>
inline constexpr AccumulatorOf<Element> reduction_start = neutral_element<op, AccumulatorOf<Element>>();

/// NaN propagates, as in the reductions between ranks.
template <ReduceOp op, class Accumulator>
SHARDWRIGHT_FUNCTION constexpr Accumulator reduced(Accumulator left, Accumulator right) {
  if constexpr (op == ReduceOp::product)
    return left * right;
  else if constexpr (op == ReduceOp::maximum)
    return left >= right || left != left ? left : right;
  else if constexpr (op == ReduceOp::minimum)
    return left <= right || left != left ? left : right;
  else
    return left + right;
}

/// A reduced number times a factor, which is 1 if the number is an integer.
template <class Element>
SHARDWRIGHT_FUNCTION constexpr Element scaled(AccumulatorOf<Element> sum, double factor) {
  if constexpr (RealElement<Element>)
    return static_cast<Element>(sum * factor);
  else
    return static_cast<Element>(sum);
}

/// out[outer, inner] over in[outer, middle, inner], in order of the middle index.
template <ReduceOp op, class Element> struct ReduceDimension {
  const Element* in;
  Element* out;
  std::size_t middle;
  std::size_t inner;
  double factor;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    auto sum = reduction_start<op, Element>;
    const Element* from = in + i / inner * middle * inner + i % inner;
    for (std::size_t m = 0; m < middle; ++m)
      sum = reduced<op>(sum, static_cast<AccumulatorOf<Element>>(from[m * inner]));
    out[i] = scaled<Element>(sum, factor);
  }
};

inline constexpr std::size_t reduction_block = 4096;

/// Of elements of some parts, of which a call reduces one.
template <ReduceOp op, std::size_t parts, class In, class Out> struct ReduceBlocks {
  const In* in;
  Out* out;
  std::size_t count;
  std::size_t block_size;
  double factor = 1;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t call) const {
    const std::size_t block = call / parts, part = call % parts;
    auto sum = reduction_start<op, Out>;
    const std::size_t end = (block + 1) * block_size < count ? (block + 1) * block_size : count;
    for (std::size_t i = block * block_size; i < end; ++i)
      sum = reduced<op>(sum, static_cast<AccumulatorOf<Out>>(in[i * parts + part]));
    out[call] = scaled<Out>(sum, factor);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
