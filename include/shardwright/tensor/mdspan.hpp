// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Views of a rank's block as std::mdspan, if the standard library has it.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <version>

#if defined(__cpp_lib_mdspan)
#include <mdspan>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A row-major span of run-time extents over this rank's block, from its first element and its extents.
template <class Span, AnyShardedTensor Tensor> [[nodiscard]] Span block_as(const Tensor& tensor) {
  return Span(tensor.data(), tensor.local_shape());
}
template <class Span, AnyShardedTensor Tensor> [[nodiscard]] Span mutable_block_as(Tensor& tensor) {
  return Span(tensor.mutable_data(), tensor.local_shape());
}

} // namespace detail

#if defined(__cpp_lib_mdspan)

/// @brief A row-major std::mdspan of a block, with its extents known at run time.
template <class Element, int tensor_rank>
using LocalSpan = std::mdspan<Element, std::dextents<std::int64_t, static_cast<std::size_t>(tensor_rank)>>;

/// @brief This rank's block, halos included, as a read-only std::mdspan: the elements of `local()`. Declared
/// only if the standard library has <mdspan> and the program is compiled as C++23.
///
/// On a target whose memory the host cannot access, only kernels may read the elements.
/// @throws LifecycleError if the tensor was moved from.
template <AnyShardedTensor Tensor>
[[nodiscard]] LocalSpan<const typename Tensor::value_type, Tensor::tensor_rank>
local_mdspan(const Tensor& tensor) {
  return detail::block_as<LocalSpan<const typename Tensor::value_type, Tensor::tensor_rank>>(tensor);
}

/// @brief The same for writing: the elements of `mutable_local()`.
/// @throws LifecycleError if the tensor was moved from, or while a read-only handle shares its memory.
template <AnyShardedTensor Tensor>
[[nodiscard]] LocalSpan<typename Tensor::value_type, Tensor::tensor_rank>
mutable_local_mdspan(Tensor& tensor) {
  return detail::mutable_block_as<LocalSpan<typename Tensor::value_type, Tensor::tensor_rank>>(tensor);
}

#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
