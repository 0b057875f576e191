// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A tensor's local block as one vector, and workspace for kernels.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The local block as one vector.
template <class Tensor> [[nodiscard]] auto vector_of(const Tensor& tensor) {
  return VectorView<const typename Tensor::value_type, typename Tensor::target>(tensor.data(),
                                                                                tensor.local_size());
}
template <class Tensor> [[nodiscard]] auto mutable_vector_of(Tensor& tensor) {
  return VectorView<typename Tensor::value_type, typename Tensor::target>(tensor.mutable_data(),
                                                                          tensor.local_size());
}

/// The same of the parts of complex elements; of real ones, themselves.
template <class Tensor> [[nodiscard]] auto part_vector_of(const Tensor& tensor) {
  using Element = typename Tensor::value_type;
  return VectorView<const RealPart<Element>, typename Tensor::target>(
      as_parts(tensor.data()), tensor.local_size() * parts_in<Element>);
}
template <class Tensor> [[nodiscard]] auto mutable_part_vector_of(Tensor& tensor) {
  using Element = typename Tensor::value_type;
  return VectorView<RealPart<Element>, typename Tensor::target>(as_parts(tensor.mutable_data()),
                                                                tensor.local_size() * parts_in<Element>);
}

/// Memory for a kernel's partial results, from the pool.
template <class Element, class Target>
[[nodiscard]] ShardedTensor<Layout<1>, Element, Target> workspace_of(TargetResources<Target>& resources,
                                                                     std::size_t elements) {
  return {resources, {static_cast<std::int64_t>(elements)}};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
