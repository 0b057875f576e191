// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix product of sharded tensors and its two gradients: local products whose layouts follow by
/// type.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/grid_product.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/ordered_products.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/summa.hpp>
#include <shardwright/tensor/transpose.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

using kernels::FastProducts;
using kernels::OrderedProducts;

namespace detail {

/// The local block as [product of the extents before `split`, product of the rest].
template <class Tensor> [[nodiscard]] auto matrix_at(const Tensor& tensor, std::size_t split) {
  const auto& local = tensor.local_shape();
  return MatrixView<const typename Tensor::value_type, typename Tensor::target>(
      tensor.data(), product(local, 0, split), product(local, split));
}
template <class Tensor> [[nodiscard]] auto mutable_matrix_at(Tensor& tensor, std::size_t split) {
  const auto& local = tensor.local_shape();
  return MatrixView<typename Tensor::value_type, typename Tensor::target>(
      tensor.mutable_data(), product(local, 0, split), product(local, split));
}

/// Y = X W over a grid.
template <class X, class W, class Y>
void run_on_grid(const X& x, const W& w, Y& y, double beta, SourceLocation where) {
  if constexpr (GridElement<typename Y::value_type>::value)
    GridRun<X, W, Y>(x, w, y, where).run(beta);
}

/// Y[T..., C...] = X[T..., D] W[D, C...].
struct PlainProduct {
  static constexpr const char* name = "matmul";
  template <class X, class W> using layout = MatmulLayout<X, W>;
  template <class X, class W>
  static constexpr ContractedDimensions contracted{X::tensor_rank - 1, X::tensor_rank};
  template <class X, class W> [[nodiscard]] static auto shape(const X& x, const W& w, SourceLocation where) {
    constexpr std::size_t tokens = X::tensor_rank - 1;
    require_equal_extents(name, "the last extent of the left tensor must be the first of the right one",
                          x.shape(), tokens, w.shape(), 0, 1, x.core(), where);
    std::array<std::int64_t, tokens + W::tensor_rank - 1> out{};
    for (std::size_t d = 0; d < tokens; ++d)
      out[d] = x.shape()[d];
    for (std::size_t d = 1; d < W::tensor_rank; ++d)
      out[tokens + d - 1] = w.shape()[d];
    return out;
  }
  template <class Products, class X, class W, class Y>
  static void run(const X& x, const W& w, Y& y, double beta, const Products& products, SourceLocation where) {
    constexpr std::size_t tokens = X::tensor_rank - 1;
    if constexpr (over_grid<typename X::layout, typename W::layout>) {
      run_on_grid(x, w, y, beta, where);
    } else {
      kernels::matmul(x.execution(), matrix_at(x, tokens), kernels::Transpose::no, matrix_at(w, 1),
                      kernels::Transpose::no, mutable_matrix_at(y, tokens), 1.0, beta, products);
    }
  }
};

/// dX[T..., D] = dY[T..., C...] W[D, C...]^T.
struct InputGradientProduct {
  static constexpr const char* name = "matmul_input_gradient";
  template <class Y, class W> using layout = MatmulLayout<Y, W, MatmulForm::right_transposed>;
  template <class Y, class W>
  static constexpr ContractedDimensions contracted{Y::tensor_rank - W::tensor_rank + 1, Y::tensor_rank};
  template <class Y, class W> [[nodiscard]] static auto shape(const Y& y, const W& w, SourceLocation where) {
    constexpr std::size_t columns = W::tensor_rank - 1;
    constexpr std::size_t tokens = Y::tensor_rank - columns;
    require_equal_extents(name,
                          "the last extents of the gradient must be those of the weight after its first",
                          y.shape(), tokens, w.shape(), 1, columns, y.core(), where);
    std::array<std::int64_t, tokens + 1> out{};
    for (std::size_t d = 0; d < tokens; ++d)
      out[d] = y.shape()[d];
    out[tokens] = w.shape()[0];
    return out;
  }
  template <class Products, class Y, class W, class X>
  static void run(const Y& y, const W& w, X& x, double beta, const Products& products, SourceLocation where) {
    constexpr std::size_t tokens = X::tensor_rank - 1;
    if constexpr (over_grid<typename Y::layout, typename W::layout>)
      run_on_grid(y, transposed_on_grid(w, where), x, beta, where);
    else
      kernels::matmul(y.execution(), matrix_at(y, tokens), kernels::Transpose::no, matrix_at(w, 1),
                      kernels::Transpose::yes, mutable_matrix_at(x, tokens), 1.0, beta, products);
  }
};

/// dW[D, C...] = X[T..., D]^T dY[T..., C...].
struct WeightGradientProduct {
  static constexpr const char* name = "matmul_weight_gradient";
  template <class X, class Y> using layout = MatmulLayout<X, Y, MatmulForm::left_transposed>;
  template <class X, class Y> static constexpr ContractedDimensions contracted{0, X::tensor_rank - 1};
  template <class X, class Y> [[nodiscard]] static auto shape(const X& x, const Y& y, SourceLocation where) {
    constexpr std::size_t tokens = X::tensor_rank - 1;
    require_equal_extents(name, "the tensors must have equal leading extents", x.shape(), 0, y.shape(), 0,
                          tokens, x.core(), where);
    std::array<std::int64_t, 1 + Y::tensor_rank - tokens> out{};
    out[0] = x.shape()[tokens];
    for (std::size_t d = tokens; d < Y::tensor_rank; ++d)
      out[1 + d - tokens] = y.shape()[d];
    return out;
  }
  template <class Products, class X, class Y, class W>
  static void run(const X& x, const Y& y, W& w, double beta, const Products& products, SourceLocation where) {
    constexpr std::size_t tokens = X::tensor_rank - 1;
    if constexpr (over_grid<typename X::layout, typename Y::layout>)
      run_on_grid(transposed_on_grid(x, where), y, w, beta, where);
    else
      kernels::matmul(x.execution(), matrix_at(x, tokens), kernels::Transpose::yes, matrix_at(y, tokens),
                      kernels::Transpose::no, mutable_matrix_at(w, 1), 1.0, beta, products);
  }
};

/// The layout of a product into a destination of layout `To`: over a grid, that may be one of sums.
template <class Form, class Left, class Right, class To> struct ProductLayout {
  using type = typename Form::template layout<Left, Right>;
};
template <class Form, class Grid, class To>
requires(is_grid<Grid>&& is_sum_of_grid<Grid, To>()) struct ProductLayout<Form, Grid, Grid, To> {
  using type = To;
};

template <class Form, class Left, class Right, class To = void, class Element = typename Left::value_type>
using ProductTensor =
    ShardedTensor<typename ProductLayout<Form, typename Left::layout, typename Right::layout, To>::type,
                  Element, typename Left::target>;

/// The element type of a product's destination: that of the factors, the AccumulationElement in which it is
/// summed, or that of gradients.
template <class Left, class Out>
using ProductOutElement = std::conditional_t<
    std::is_same_v<typename Out::value_type, AccumulationElement<typename Left::value_type>> ||
        std::is_same_v<typename Out::value_type,
                       GradientElement<typename Left::value_type, typename Left::target>>,
    typename Out::value_type, typename Left::value_type>;

/// Gradients of products conjugate nothing, and kernels multiply real elements.
template <class Element> struct ProductElement {
  static constexpr bool value = !ComplexElement<Element>;
  static_assert(
      value,
      "matmul: the elements must be real, because matrices of complex elements are not multiplied (multiply the real and the imaginary parts as tensors of their own)");
};

/// The product in its own layout, or in that of a destination.
template <class Form, class Products = kernels::FastProducts, class To = void, class Left, class Right>
[[nodiscard]] ProductTensor<Form, Left, Right, To> product_of(const Left& left, const Right& right,
                                                              SourceLocation where) {
  using Result = ProductTensor<Form, Left, Right, To>;
  if constexpr (!std::is_void_v<To>)
    static_cast<void>(
        DestinationOf<Result, ShardedTensor<To, typename Left::value_type, typename Left::target>>::value);
  if constexpr (SameElementAndTarget<Left, Right>::value &&
                ProductElement<typename Left::value_type>::value && !any_invalid<typename Result::layout>) {
    require_one_mesh(Form::name, left, right, where);
    static_cast<void>(ProductIsWhole<ProductsOn<Products, typename Left::target>, typename Left::layout,
                                     typename Right::layout, typename Result::layout>::value);
    Result out(left.resources(), Form::shape(left, right, where), where);
    run_product<Form, Products>(left, right, out, 0.0, nullptr, where);
    return out;
  } else {
    return Result(left.resources(), {}, where);
  }
}

template <class Form, class Products = kernels::FastProducts, class Out, class Left, class Right>
void product_into(Out& out, const Left& left, const Right& right, double beta, SourceLocation where,
                  bool* fault = nullptr) {
  using Result = ProductTensor<Form, Left, Right, typename Out::layout, ProductOutElement<Left, Out>>;
  if constexpr (SameElementAndTarget<Left, Right>::value &&
                ProductElement<typename Left::value_type>::value && !any_invalid<typename Result::layout>) {
    if constexpr (DestinationOf<Result, Out>::value) {
      require_one_mesh(Form::name, left, right, where);
      require_one_mesh(Form::name, left, out, where);
      require_shape(Form::name, "destination", out.shape(), Form::shape(left, right, where), left.core(),
                    where);
      static_cast<void>(ProductIsWhole<ProductsOn<Products, typename Left::target>, typename Left::layout,
                                       typename Right::layout, typename Result::layout>::value);
      run_product<Form, Products>(left, right, out, beta, fault, where);
    }
  }
}

} // namespace detail

namespace operation {

/// @brief Y = X W with its gradients, dX = dY W^T and dW = X^T dY; or, with W transposed, Y = X W^T with
/// dX = dY W and dW = dY^T X. `To` is the layout of Y, if it is asked for; over a grid also that of
/// gradients.
template <bool transposed, class Products = kernels::FastProducts, class To = void> struct MatrixProduct {
  static constexpr std::string_view name = transposed ? "matmul_transposed" : "matmul";
  static constexpr GradientReads left_gradient_reads{.left = false, .right = true};
  static constexpr GradientReads right_gradient_reads{.left = true, .right = false};
  using Forward = std::conditional_t<transposed, detail::InputGradientProduct, detail::PlainProduct>;
  using Backward = std::conditional_t<transposed, detail::PlainProduct, detail::InputGradientProduct>;
  /// The layout that is asked for of a gradient.
  template <class Left, class Right>
  using Asked =
      std::conditional_t<detail::over_grid<typename Left::layout, typename Right::layout>, To, void>;

  template <class X, class W> [[nodiscard]] auto forward(SourceLocation where, const X& x, const W& w) const {
    return detail::product_of<Forward, Products, To>(x, w, where);
  }
  template <class G, class X, class W>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const X&, const W& w) const {
    return detail::product_of<Backward, Products, Asked<G, W>>(y_gradient, w, {});
  }
  /// Its type is known without its body, which is not compiled where right_gradient_into() is called.
  template <class G, class X>
  using RightGradient =
      detail::ProductTensor<detail::WeightGradientProduct, std::conditional_t<transposed, G, X>,
                            std::conditional_t<transposed, X, G>, Asked<X, G>>;
  template <class G, class X, class W>
  [[nodiscard]] RightGradient<G, X> right_gradient(const G& y_gradient, const X& x, const W&) const {
    if constexpr (transposed)
      return detail::product_of<detail::WeightGradientProduct, Products, Asked<X, G>>(y_gradient, x, {});
    else
      return detail::product_of<detail::WeightGradientProduct, Products, Asked<X, G>>(x, y_gradient, {});
  }
  template <class Slot, class G, class X>
  void right_gradient_into(const Slot& slot, const G& y_gradient, const X& x) const {
    if constexpr (transposed)
      detail::product_into<detail::WeightGradientProduct, Products>(slot.tensor, y_gradient, x, slot.beta, {},
                                                                    detail::fault_of(slot));
    else
      detail::product_into<detail::WeightGradientProduct, Products>(slot.tensor, x, y_gradient, slot.beta, {},
                                                                    detail::fault_of(slot));
  }
};
using Matmul = MatrixProduct<false>;
using MatmulTransposed = MatrixProduct<true>;

} // namespace operation

/// @brief Y[T..., C...] = X[T..., D] W[D, C...]: the last dimension of `x` with the first of `w`.
///
/// No communication. A dimension of the result keeps its operand's shards; if D is sharded (alike in both),
/// the result is Partial<Sum> over those axes. Cost: 2 |T| |C| |D| local floating-point operations. Products
/// of 16-bit elements are summed in float and rounded once.
///
/// Matrices of one layout that splits rows and columns, a grid of ranks, are multiplied by SUMMA: the plan is
/// GridProduct (layout/grid_product.hpp). Panels are broadcast while earlier ones are multiplied; a rank
/// needs memory for two of each operand. The gradients, dY W^T and X^T dY, are such products, of an operand
/// that is transposed before, for which a rank receives at most its block and holds two.
/// @throws InvalidArgument if the extents of D differ or the tensors are on two meshes.
template <Operand X, Operand W>
[[nodiscard]] auto matmul(X&& x, W&& w, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Matmul{}, where, std::forward<X>(x), std::forward<W>(w));
}

/// @brief Y[T..., V] = X[T..., C...] W[V, C...]^T: the last dimensions of `x` with those of `w`, such as the
/// logits of an output table.
///
/// No communication. Cost and errors as matmul; Partial<Sum> over the axes that shard C. Matrices on one grid
/// are multiplied as by the gradients of matmul.
template <Operand X, Operand W>
[[nodiscard]] auto matmul_transposed(X&& x, W&& w, SourceLocation where = SourceLocation::current()) {
  return apply(operation::MatmulTransposed{}, where, std::forward<X>(x), std::forward<W>(w));
}

/// @brief matmul and matmul_transposed whose elements have the same bits in a product of any size:
/// `matmul<OrderedProducts>(x, w)`, whatever the mesh cuts of the dimensions of the result. The gradients are
/// ordered, too.
///
/// On hosts, for float and double. The contracted dimension must not be sharded, nor that of a gradient, so
/// on a tape no dimension: the sums of ranks are not ordered.
template <std::same_as<kernels::OrderedProducts> Products, Operand X, Operand W>
[[nodiscard]] auto matmul(X&& x, W&& w, SourceLocation where = SourceLocation::current()) {
  return apply(operation::MatrixProduct<false, Products>{}, where, std::forward<X>(x), std::forward<W>(w));
}
template <std::same_as<kernels::OrderedProducts> Products, Operand X, Operand W>
[[nodiscard]] auto matmul_transposed(X&& x, W&& w, SourceLocation where = SourceLocation::current()) {
  return apply(operation::MatrixProduct<true, Products>{}, where, std::forward<X>(x), std::forward<W>(w));
}

/// @brief The product in the layout `To`, which is that of matmul, or for matrices on a grid that layout with
/// Partial<Sum, depth> over axes along which they are replicated: each rank along them multiplies its share
/// of the panels, the 2.5-D algorithm. On a tape the gradients are sums over these axes, too.
template <LayoutType To, Operand X, Operand W>
[[nodiscard]] auto matmul(X&& x, W&& w, SourceLocation where = SourceLocation::current()) {
  return apply(operation::MatrixProduct<false, kernels::FastProducts, To>{}, where, std::forward<X>(x),
               std::forward<W>(w));
}

/// @brief Rejects a sharded tensor with a plain one, with an error sentence.
template <class X, class W>
requires(detail::MixedOperands<X, W>) auto matmul(const X& x, const W& w,
                                                  SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(x, w, where);
}

/// @brief `out` = X W + beta `out`, in a layout that matmul gives; beta 0 ignores the old content of `out`.
///
/// `out` must not share memory with an operand. It has the operands' element or their AccumulationElement: a
/// float destination gets the unrounded sums of a 16-bit product.
template <AnyShardedTensor Out, AnyShardedTensor X, AnyShardedTensor W>
void matmul_into(Out& out, const X& x, const W& w, double beta = 0.0,
                 SourceLocation where = SourceLocation::current()) {
  detail::product_into<detail::PlainProduct>(out, x, w, beta, where);
}

/// @brief The gradient of `x` of a matmul: dX[T..., D] = dY[T..., C...] W[D, C...]^T.
///
/// No communication; of matrices on a grid, as the gradients of matmul. Partial<Sum> over the axes that shard
/// C; pass it on with redistribute<Gradient<L>>.
/// @throws InvalidArgument if the extents of C differ or the tensors are on two meshes.
template <AnyShardedTensor Y, AnyShardedTensor W>
[[nodiscard]] auto matmul_input_gradient(const Y& y_gradient, const W& w,
                                         SourceLocation where = SourceLocation::current()) {
  return detail::product_of<detail::InputGradientProduct>(y_gradient, w, where);
}

/// @brief `out` = dY W^T + beta `out`, in the layout that matmul_input_gradient gives.
template <AnyShardedTensor Out, AnyShardedTensor Y, AnyShardedTensor W>
void matmul_input_gradient_into(Out& out, const Y& y_gradient, const W& w, double beta = 0.0,
                                SourceLocation where = SourceLocation::current()) {
  detail::product_into<detail::InputGradientProduct>(out, y_gradient, w, beta, where);
}

/// @brief The gradient of `w` of a matmul: dW[D, C...] = X[T..., D]^T dY[T..., C...].
///
/// No communication; of matrices on a grid, as the gradients of matmul. Partial<Sum> over the axes that shard
/// T, such as dp.
/// @throws InvalidArgument if the extents of T differ or the tensors are on two meshes.
template <AnyShardedTensor X, AnyShardedTensor Y>
[[nodiscard]] auto matmul_weight_gradient(const X& x, const Y& y_gradient,
                                          SourceLocation where = SourceLocation::current()) {
  return detail::product_of<detail::WeightGradientProduct>(x, y_gradient, where);
}

/// @brief `out` = X^T dY + beta `out`, in the layout that matmul_weight_gradient gives; beta 1 accumulates.
template <AnyShardedTensor Out, AnyShardedTensor X, AnyShardedTensor Y>
void matmul_weight_gradient_into(Out& out, const X& x, const Y& y_gradient, double beta = 0.0,
                                 SourceLocation where = SourceLocation::current()) {
  detail::product_into<detail::WeightGradientProduct>(out, x, y_gradient, beta, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
