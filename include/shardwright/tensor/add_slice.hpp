// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Adds to a slice of a tensor, along a dimension that is not sharded.

#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/tensor/kernels/insert_columns.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <Kokkos_Core.hpp>

#include <array>
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

/// Columns of a local matrix. A dry run has no memory to which they could point.
template <class Target, class Matrix>
[[nodiscard]] auto columns_of(const Matrix& matrix, std::size_t first, std::size_t count) {
  const std::size_t begin = counts_only<Target> ? 0 : first;
  return Kokkos::subview(matrix, Kokkos::ALL, std::pair{begin, begin + count});
}

/// y[T..., at + i, ...] += factor h[T..., k] b[k, i, ...] in the memory of y, where the first dimension of
/// the columns is not sharded or whole. y, h and b are values on a tape or a parameter; all gradients are
/// computed together. Linear in y and h: Partials are allowed, alike.
struct AddProduct {
  static constexpr std::string_view name = "add_product";
  static constexpr std::array gradients_read{GradientReads{.right = true}};
  std::int64_t at;
  double factor;

  template <AnyShardedTensor Y, AnyShardedTensor H, AnyShardedTensor B>
  [[nodiscard]] auto forward(SourceLocation, Y&& y, const H& h, const B& b) const {
    static_assert(std::is_same_v<typename std::remove_cvref_t<Y>::layout,
                                 MatmulLayout<typename H::layout, typename B::layout>>);
    constexpr std::size_t tokens = H::tensor_rank - 1;
    auto out = owned(std::forward<Y>(y));
    const auto matrix = matrix_at(b, 1);
    kernels::matmul(
        out.execution(), matrix_at(h, tokens), kernels::Transpose::no, matrix, kernels::Transpose::no,
        columns_of<typename H::target>(mutable_matrix_at(out, tokens), first(out, tokens), matrix.extent(1)),
        factor, 1.0);
    return out;
  }
  template <class G, class Y, class H, class B> void gradients(G y_gradient, Y& y, H& h, B& b) const {
    using L = typename G::layout;
    constexpr std::size_t tokens = H::Value::tensor_rank - 1;
    if constexpr (B::template takes<MatmulLayout<typename H::layout, L, MatmulForm::left_transposed>>()) {
      const auto inner = h.read_last();
      const auto weight = b.read();
      const auto matrix = matrix_at(weight, 1);
      const auto given = columns_of<typename G::target>(matrix_at(y_gradient, tokens),
                                                        first(y_gradient, tokens), matrix.extent(1));
      const auto& execution = y_gradient.execution();
      const auto slot = b.slot();
      kernels::matmul(execution, matrix_at(inner, tokens), kernels::Transpose::yes, given,
                      kernels::Transpose::no, mutable_matrix_at(slot.tensor, 1), factor,
                      static_cast<double>(slot.beta));
      if (h.wants_gradient()) {
        using To = MatmulLayout<L, typename B::layout, MatmulForm::right_transposed>;
        ShardedTensor<To, typename H::element, typename H::target> to(inner.resources(), inner.shape());
        kernels::matmul(execution, given, kernels::Transpose::no, matrix, kernels::Transpose::yes,
                        mutable_matrix_at(to, tokens), factor, 0.0);
        h.give(std::move(to));
      }
      if (y.wants_gradient())
        y.give(std::move(y_gradient));
    }
  }

private:
  template <class Tensor> [[nodiscard]] std::size_t first(const Tensor& tensor, std::size_t tokens) const {
    return static_cast<std::size_t>(at) * elements_after(tensor, tokens);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
