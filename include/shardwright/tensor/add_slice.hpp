// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Adds to a slice of a tensor, along a dimension that is not sharded, and the products of layers with
/// adapters.

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

/// Columns of a local matrix. A dry run has no memory to which they could point.
template <class Target, class Matrix>
[[nodiscard]] auto columns_of(const Matrix& matrix, std::size_t first, std::size_t count) {
  const std::size_t begin = counts_only<Target> ? 0 : first;
  return Kokkos::subview(matrix, Kokkos::ALL, std::pair{begin, begin + count});
}

/// x[T..., i] W[i, ...], for a layer beside whose frozen W there may be adapters, and for their A: they all
/// read one x. Each adds its part to the gradient of x in the memory of the sum so far, except on a
/// Reproducible target, where the parts are rounded and then added.
/// @tparam trains whether W has a gradient
template <bool trains> struct LayerProduct {
  static constexpr std::string_view name = "matmul";
  static constexpr std::array gradients_read{GradientReads{}, GradientReads{.left = trains}};

  template <class X, class W> [[nodiscard]] auto forward(SourceLocation where, const X& x, const W& w) const {
    return product_of<PlainProduct>(x, w, where);
  }
  template <class G, class X, class W> void gradients(const G& y_gradient, X& x, W& w) const {
    using L = typename G::layout;
    if constexpr (trains) {
      if constexpr (W::template takes<MatmulLayout<typename X::layout, L, MatmulForm::left_transposed>>()) {
        const auto slot = w.slot();
        product_into<WeightGradientProduct>(slot.tensor, x.read_last(), y_gradient,
                                            static_cast<double>(slot.beta), {}, fault_of(slot));
      }
    }
    if (!x.wants_gradient())
      return;
    const auto weight = w.read();
    using Raw = MatmulLayout<L, typename W::layout, MatmulForm::right_transposed>;
    if (auto sum = x.template take_sum<Raw>()) {
      product_into<InputGradientProduct>(*sum, y_gradient, weight, 1.0, {});
      x.give(*std::move(sum));
    } else {
      x.give(product_of<InputGradientProduct>(y_gradient, weight, {}));
    }
  }
};

/// y[T..., ., at + i, ...] += factor h[T..., k] b[k, ., i, ...] in the memory of y, where i is in `dimension`
/// of b, which is not sharded or whole. y, h and b are values on a tape or a parameter; all gradients are
/// computed together. Linear in y and h: Partials are allowed, alike, but not on a Reproducible target.
struct AddProduct {
  static constexpr std::string_view name = "add_product";
  static constexpr std::array gradients_read{GradientReads{.right = true}};
  std::size_t dimension;
  std::int64_t at;
  double factor;

  template <AnyShardedTensor Y, AnyShardedTensor H, AnyShardedTensor B>
  [[nodiscard]] auto forward(SourceLocation where, Y&& y, const H& h, const B& b) const {
    static_assert(std::is_same_v<typename std::remove_cvref_t<Y>::layout,
                                 MatmulLayout<typename H::layout, typename B::layout>>);
    constexpr std::size_t tokens = H::tensor_rank - 1;
    auto out = owned(std::forward<Y>(y));
    const auto inner = matrix_at(h, tokens);
    const auto products = kernel_products<PlainProduct, typename H::value_type>(h, b, nullptr, where);
    each_group(out, mutable_matrix_at(out, tokens), b, [&](bool, const auto& to, const auto& columns) {
      kernels::matmul(out.execution(), inner, kernels::Transpose::no, columns, kernels::Transpose::no, to,
                      factor, 1.0, products);
    });
    return out;
  }
  template <class G, class Y, class H, class B> void gradients(G y_gradient, Y& y, H& h, B& b) const {
    using L = typename G::layout;
    constexpr std::size_t tokens = H::Value::tensor_rank - 1;
    if constexpr (B::template takes<MatmulLayout<typename H::layout, L, MatmulForm::left_transposed>>()) {
      const auto inner = h.read_last();
      const auto weight = b.read();
      const auto& execution = y_gradient.execution();
      const auto given = matrix_at(y_gradient, tokens);
      const auto slot = b.slot();
      auto& total = slot.tensor;
      const auto terms = kernel_products<WeightGradientProduct, typename B::gradient_element>(
          inner, y_gradient, fault_of(slot));
      each_group(y_gradient, given, total, [&](bool, const auto& from, const auto& to) {
        kernels::matmul(execution, matrix_at(inner, tokens), kernels::Transpose::yes, from,
                        kernels::Transpose::no, to, factor, static_cast<double>(slot.beta), terms);
      });
      if (h.wants_gradient()) {
        using To = MatmulLayout<L, typename B::layout, MatmulForm::right_transposed>;
        ShardedTensor<To, typename H::element, typename H::target> to(inner.resources(), inner.shape());
        if constexpr (is_reproducible<typename G::target>) { // one product, whose parts join in a tree
          const auto own = part_of(y_gradient, weight);
          kernels::matmul(execution, matrix_at(own, tokens), kernels::Transpose::no, matrix_at(weight, 1),
                          kernels::Transpose::yes, mutable_matrix_at(to, tokens), factor, 0.0,
                          kernel_products<InputGradientProduct, typename H::element>(own, weight));
        } else {
          each_group(y_gradient, given, weight, [&](bool first, const auto& from, const auto& columns) {
            kernels::matmul(execution, from, kernels::Transpose::no, columns, kernels::Transpose::yes,
                            mutable_matrix_at(to, tokens), factor, first ? 0.0 : 1.0);
          });
        }
        h.give(std::move(to));
      }
      if (y.wants_gradient())
        y.give(std::move(y_gradient));
    }
  }

private:
  /// The part of y to which b belongs, in memory of its own if it is not all of y.
  template <class Y, class B> [[nodiscard]] auto part_of(const Y& y, const B& b) const {
    constexpr std::size_t tokens = Y::tensor_rank - B::tensor_rank + 1;
    const std::size_t d = tokens + dimension - 1;
    auto shape = y.shape();
    if (shape[d] == b.shape()[dimension])
      return y.share();
    shape[d] = b.shape()[dimension];
    ShardedTensor<typename Y::layout, std::remove_const_t<typename Y::value_type>, typename Y::target> out(
        y.resources(), shape);
    if (out.local_size() > 0)
      kernels::inserted_columns(out.execution(), matrix_at(y, d), mutable_matrix_at(out, d),
                                static_cast<std::size_t>(at) * elements_after(y, d), 1);
    return out.share();
  }
  /// Calls visit(first, columns of y, columns of b) for each index of the dimensions of b before `dimension`;
  /// once if there is none here.
  template <class Y, class Matrix, class B, class Visit>
  void each_group(const Y& y, const Matrix& of_y, B& b, const Visit& visit) const {
    using Target = typename Y::target;
    constexpr std::size_t tokens = Y::tensor_rank - std::remove_cvref_t<B>::tensor_rank + 1;
    const std::size_t here = product(b.local_shape(), 1, dimension), groups = here == 0 ? 1 : here;
    const auto of_b = [&b] {
      if constexpr (std::is_const_v<B>)
        return matrix_at(b, 1);
      else
        return mutable_matrix_at(b, 1);
    }();
    const std::size_t part = of_b.extent(1) / groups, row = of_y.extent(1) / groups;
    const std::size_t first =
        part == 0 ? 0 : static_cast<std::size_t>(at) * elements_after(y, tokens + dimension - 1);
    for (std::size_t group = 0; group < groups; ++group)
      visit(group == 0, columns_of<Target>(of_y, group * row + first, part),
            columns_of<Target>(of_b, group * part, part));
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
