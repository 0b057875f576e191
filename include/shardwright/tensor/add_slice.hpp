// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Adds to a slice of a tensor, along a dimension that is not sharded.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/kernels/insert_columns.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The local elements of a tensor per index of a dimension, within an index of those before it.
template <class Tensor>
[[nodiscard]] std::size_t elements_after(const Tensor& tensor, std::size_t dimension) {
  std::size_t out = 1;
  for (std::size_t d = dimension + 1; d < Tensor::tensor_rank; ++d)
    out *= static_cast<std::size_t>(tensor.local_shape()[d]);
  return out;
}

/// out[.., at + i, ..] += factor part[.., i, ..], where i is the index of `dimension`, which is not sharded.
template <class Out, class Part>
void add_to_slice(Out& out, const Part& part, std::size_t dimension, std::int64_t at, double factor) {
  if (part.local_size() > 0)
    kernels::add_columns(out.execution(), matrix_at(part, dimension), mutable_matrix_at(out, dimension),
                         static_cast<std::size_t>(at) * elements_after(out, dimension), factor);
}

/// x with a part added to some indices of a dimension, and the gradients. Linear: Partials are allowed.
struct AddSlice {
  static constexpr std::string_view name = "add_slice";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
  std::size_t dimension;
  std::int64_t at;

  template <AnyShardedTensor X, AnyShardedTensor Part>
  [[nodiscard]] auto forward(SourceLocation, X&& x, const Part& part) const {
    static_assert(std::is_same_v<typename std::remove_cvref_t<X>::layout, typename Part::layout>);
    auto out = owned(std::forward<X>(x));
    add_to_slice(out, part, dimension, at, 1);
    return out;
  }
  template <class G, class X, class Part>
  [[nodiscard]] G left_gradient(G y_gradient, const X&, const Part&) const {
    return y_gradient;
  }
  template <class G, class X, class Part>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const X&, const Part& part) const {
    ShardedTensor<typename G::layout, std::remove_const_t<typename G::value_type>, typename G::target> out(
        y_gradient.resources(), part.shape());
    if (out.local_size() > 0)
      kernels::inserted_columns(out.execution(), matrix_at(y_gradient, dimension),
                                mutable_matrix_at(out, dimension),
                                static_cast<std::size_t>(at) * elements_after(y_gradient, dimension), 1);
    return out;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
