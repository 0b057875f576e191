// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Fills of sharded tensors: constants, and random numbers that do not depend on the layout.

#include <shardwright/core/element.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/elementwise/number.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The value that fills a tensor: a number, or a byte.
template <class Tensor> struct FillValueOf { using type = NumberFor<Tensor>; };
template <class Tensor>
requires std::is_same_v<typename Tensor::value_type, std::byte>
struct FillValueOf<Tensor> {
  struct type {
    std::byte value;
    SourceLocation where;
    type(std::byte given, SourceLocation line = SourceLocation::current()) : value(given), where(line) {}
  };
};

template <class Tensor> struct FillOf {
  static_assert(
      !Tensor::layout::value.has_partial(),
      "fill: the tensor must not be Partial, as every rank's part would count (fill a layout without Partial; fill_zero starts an accumulator)");
  static constexpr bool value = !Tensor::layout::value.has_partial();
};

template <class Tensor> struct RandomFillOf : FillOf<Tensor> {
  static_assert(!has_halos<typename Tensor::layout>,
                "random fill: the tensor must have no halos (fill one without, and redistribute it)");
  static_assert(Tensor::tensor_rank >= 1 && Tensor::tensor_rank <= 4,
                "random fill: the tensor must have one to four dimensions (merge dimensions)");
  static_assert(FieldElement<typename Tensor::value_type>,
                "random fill: the element type must be floating-point (convert it first)");
  static constexpr bool value = FillOf<Tensor>::value && !has_halos<typename Tensor::layout> &&
                                Tensor::tensor_rank >= 1 && Tensor::tensor_rank <= 4 &&
                                FieldElement<typename Tensor::value_type>;
};

/// The position of this rank's block in the whole tensor.
template <class Tensor> [[nodiscard]] kernels::BlockPosition position_of(const Tensor& tensor) {
  kernels::BlockPosition position;
  const auto offset = tensor.local_offset();
  for (std::size_t d = 0; d < offset.size(); ++d) {
    position.offset[d] = static_cast<std::size_t>(offset[d]);
    position.global[d] = static_cast<std::size_t>(tensor.shape()[d]);
  }
  return position;
}

} // namespace detail

/// @brief Every element = value, a whole number for integers.
/// @throws InvalidArgument for a number that an integer element cannot hold.
template <AnyShardedTensor Tensor>
void fill(Tensor& tensor, typename detail::FillValueOf<Tensor>::type value) {
  using Element = typename Tensor::value_type;
  if constexpr (detail::FillOf<Tensor>::value) {
    tensor.require_memory(value.where);
    if constexpr (!std::is_same_v<decltype(value.value), std::byte>)
      detail::agreed_number<typename Tensor::layout>(tensor.core(), "fill", value.where, "value",
                                                     value.value);
    kernels::run("sw::fill", tensor.execution(), tensor.local_size(),
                 kernels::StoreValue<Element>{tensor.mutable_data(), static_cast<Element>(value.value)});
  }
}

/// @brief Every element = 0; a Partial Sum starts from nothing.
/// @throws LifecycleError if the tensor was moved from.
template <AnyShardedTensor Tensor>
void fill_zero(Tensor& tensor, SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  detail::fill_zero<typename Tensor::target>(tensor.execution(), tensor.mutable_data(), tensor.local_size());
}

/// @brief Uniform numbers in (low, high), keyed by seed, tensor and global element index: the same on every
/// layout. Both parts of a complex element are such numbers.
/// @throws LifecycleError if the tensor was moved from; ConfigurationMismatch in checked builds if ranks give
/// other numbers.
template <AnyShardedTensor Tensor>
void fill_uniform(Tensor& tensor, RandomKey key, double low = 0.0, double high = 1.0,
                  SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  detail::agreed(tensor.core(), "fill_uniform", where, detail::no_axes, GivenNumber("seed", key.seed),
                 GivenNumber("tensor's key", key.tensor), GivenNumber("low", low), GivenNumber("high", high));
  if constexpr (detail::RandomFillOf<Tensor>::value)
    kernels::fill_uniform(tensor.execution(), tensor.mutable_local(), detail::position_of(tensor), key, low,
                          high);
}

/// @brief Normal numbers, keyed by seed, tensor and global element index: the same on every layout. Both
/// parts of a complex element are such numbers.
/// @throws LifecycleError if the tensor was moved from; ConfigurationMismatch in checked builds if ranks give
/// other numbers.
template <AnyShardedTensor Tensor>
void fill_normal(Tensor& tensor, RandomKey key, double mean = 0.0, double deviation = 1.0,
                 SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  detail::agreed(tensor.core(), "fill_normal", where, detail::no_axes, GivenNumber("seed", key.seed),
                 GivenNumber("tensor's key", key.tensor), GivenNumber("mean", mean),
                 GivenNumber("deviation", deviation));
  if constexpr (detail::RandomFillOf<Tensor>::value)
    kernels::fill_normal(tensor.execution(), tensor.mutable_local(), detail::position_of(tensor), key, mean,
                         deviation);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
