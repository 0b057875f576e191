// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reductions of sharded tensors over one dimension or all: local sums that leave Partial where it was
/// sharded.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/map_kernels.hpp>
#include <shardwright/tensor/operation_checks.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Sums of floating-point elements run in double precision.
template <class Element>
using AccumulatorOf = std::conditional_t<RealElement<Element>, double, Element>;

template <ReduceOp op, class Accumulator>
constexpr Accumulator neutral_element() {
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

/// A constant, because kernels on a device can not call the functions of std::numeric_limits.
template <ReduceOp op, class Element>
inline constexpr AccumulatorOf<Element> reduction_start = neutral_element<op, AccumulatorOf<Element>>();

/// A NaN stays, as in the reductions between ranks.
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

/// out[outer, inner] over in[outer, middle, inner], in order of the middle index.
template <ReduceOp op, class Element>
struct ReduceDimension {
  const Element* in;
  Element* out;
  std::size_t middle;
  std::size_t inner;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    auto sum = reduction_start<op, Element>;
    const Element* from = in + i / inner * middle * inner + i % inner;
    for (std::size_t m = 0; m < middle; ++m)
      sum = reduced<op>(sum, static_cast<AccumulatorOf<Element>>(from[m * inner]));
    out[i] = static_cast<Element>(sum);
  }
};

inline constexpr std::size_t reduction_block = 4096;

template <ReduceOp op, class In, class Out>
struct ReduceBlocks {
  const In* in;
  Out* out;
  std::size_t count;
  std::size_t block_size;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    auto sum = reduction_start<op, Out>;
    const std::size_t end = (block + 1) * block_size < count ? (block + 1) * block_size : count;
    for (std::size_t i = block * block_size; i < end; ++i)
      sum = reduced<op>(sum, static_cast<AccumulatorOf<Out>>(in[i]));
    out[block] = static_cast<Out>(sum);
  }
};

template <class Op, class Input, class Result>
void reduce_all_blocks(const Input& input, Result& out) {
  using Element = typename Input::value_type;
  using Accumulator = AccumulatorOf<Element>;
  const std::size_t count = input.local_size();
  const std::size_t blocks = count == 0 ? 1 : (count + reduction_block - 1) / reduction_block;
  auto& resources = input.resources();
  const BufferHandle partial(resources.take(blocks * sizeof(Accumulator)));
  auto* const sums = static_cast<Accumulator*>(partial.data());
  kernels::detail::run(
      "sw::reduce", resources.execution(), blocks,
      ReduceBlocks<Op::value, Element, Accumulator>{input.data(), sums, count, reduction_block});
  kernels::detail::run(
      "sw::reduce", resources.execution(), 1,
      ReduceBlocks<Op::value, Accumulator, Element>{sums, out.mutable_data(), blocks, blocks});
}

} // namespace detail

/// @brief Reduces one dimension away with `Op`: where it is sharded, the result is Partial<Op> over those
/// axes.
///
/// No communication; redistribute finishes the result. Sums of float run in double, in a fixed order.
/// An empty block gives the operation's neutral element. @tparam Op Sum, Product, Max or Min
template <Reduction Op, int dimension, AnyShardedTensor Input>
[[nodiscard]] auto reduce(const Input& input, SourceLocation where = SourceLocation::current()) {
  static_assert(
      !std::is_same_v<Op, Avg>,
      "reduce: an average must be a Sum that is scaled once (reduce with Sum, and scale by 1 / extent)");
  using Result = detail::ResultTensor<ReductionLayout<Op, dimension, typename Input::layout>, Input>;
  if constexpr (detail::any_invalid<typename Result::layout>) {
    return Result(input.resources(), {}, where);
  } else {
    typename Result::Shape shape{};
    for (std::size_t d = 0; d < shape.size(); ++d)
      shape[d] = input.shape()[d < static_cast<std::size_t>(dimension) ? d : d + 1];
    Result out(input.resources(), shape, where);
    std::size_t inner = 1;
    for (std::size_t d = dimension + 1; d < input.local_shape().size(); ++d)
      inner *= static_cast<std::size_t>(input.local_shape()[d]);
    const auto middle = static_cast<std::size_t>(input.local_shape()[static_cast<std::size_t>(dimension)]);
    using Kernel = detail::ReduceDimension<Op::value, typename Input::value_type>;
    kernels::detail::run("sw::reduce", input.execution(), out.local_size(),
                         Kernel{input.data(), out.mutable_data(), middle, inner});
    return out;
  }
}

/// @brief Reduces all dimensions to one number, a tensor of rank 0.
///
/// No communication; Partial<Op> over the axes that shard the input. Blocks of 4096 elements are summed in
/// order, and then their sums, in double precision for floating-point elements.
template <Reduction Op, AnyShardedTensor Input>
[[nodiscard]] auto reduce_all(const Input& input, SourceLocation where = SourceLocation::current()) {
  static_assert(
      !std::is_same_v<Op, Avg>,
      "reduce_all: an average must be a Sum that is scaled once (reduce with Sum, and scale by 1 / size())");
  using Result = detail::ResultTensor<ReduceAllLayout<Op, typename Input::layout>, Input>;
  Result out(input.resources(), {}, where);
  if constexpr (!detail::any_invalid<typename Result::layout>)
    detail::reduce_all_blocks<Op>(input, out);
  return out;
}

/// @brief reduce with Sum.
template <int dimension, AnyShardedTensor Input>
[[nodiscard]] auto sum(const Input& input, SourceLocation where = SourceLocation::current()) {
  return reduce<Sum, dimension>(input, where);
}

/// @brief The number in a tensor of rank 0, the same on every rank; waits for the kernels that make it.
template <AnyShardedTensor Tensor>
[[nodiscard]] typename Tensor::value_type item(const Tensor& tensor) {
  static_assert(Tensor::tensor_rank == 0, "item: the tensor must have rank 0 (reduce it first)");
  static_assert(!Tensor::layout::value.has_partial(),
                "item: the tensor must not be Partial, an unfinished sum (redistribute it first)");
  static_assert(Tensor::target::host_accessible, "item: the tensor must be in host memory (copy it first)");
  detail::wait_for_kernels(tensor.execution());
  return *tensor.data();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
