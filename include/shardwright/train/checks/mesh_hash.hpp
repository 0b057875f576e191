// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Hashes of tensors that do not depend on how a mesh cuts them.

#include <shardwright/core/element.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The sum of the hashes of this rank's elements: of the place of each in the whole tensor, and its bits.
/// @param offset of the first element, and `local` the extents of the row-major block
[[nodiscard]] std::uint64_t hash_in_place(const void* data, std::size_t element_bytes,
                                          std::span<const std::int64_t> shape,
                                          std::span<const std::int64_t> offset,
                                          std::span<const std::int64_t> local);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::uint64_t hash_in_place(const void* data, std::size_t element_bytes,
                                               std::span<const std::int64_t> shape,
                                               std::span<const std::int64_t> offset,
                                               std::span<const std::int64_t> local) {
  const std::size_t last = shape.size() - 1;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < last; ++d)
    rows *= local[d];
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t place = 0;
    std::int64_t rest = row;
    std::int64_t stride = shape[last];
    for (std::size_t d = last; d-- > 0;) {
      place += (offset[d] + rest % local[d]) * stride;
      rest /= local[d];
      stride *= shape[d];
    }
    place += offset[last];
    for (std::int64_t i = 0; i < local[last]; ++i, at += element_bytes) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, at, element_bytes);
      sum += mixed(static_cast<std::uint64_t>(place + i) * 0x9e3779b97f4a7c15U, bits);
    }
  }
  return sum;
}
#endif

} // namespace detail

/// @brief This rank's part of a tensor's hash: the sum of the parts of all ranks, modulo 2^64, is the same on
/// every mesh and in every layout, and another one if a bit of one element differs. Host memory; a part of
/// ranks that hold replicas counts once.
/// @param tensor of at least one dimension, not Partial, without halos
template <AnyShardedTensor Tensor> [[nodiscard]] std::uint64_t mesh_hash_part(const Tensor& tensor) {
  using L = typename Tensor::layout;
  static_assert(
      !L::value.has_partial() && Tensor::target::host_accessible && Tensor::tensor_rank > 0,
      "mesh_hash_part: the tensor must be complete, in host memory and of at least one dimension (redistribute it first)");
  if (!detail::counts_once<L>(tensor.core()))
    return 0;
  return detail::hash_in_place(tensor.data(), sizeof(typename Tensor::value_type), tensor.shape(),
                               tensor.local_offset(), tensor.local_shape());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
