// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Local matrix product: the host's BLAS or cuBLAS if available, else kernels of this library.

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/gemm_problem.hpp>
#include <shardwright/tensor/kernels/product/ordered.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>
#include <shardwright/tensor/kernels/product/widened.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && defined(SHARDWRIGHT_WITH_CUBLAS)
#include <shardwright/tensor/kernels/product/cuda_gemm.hpp>
#endif

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief How a matrix product reads a factor: as is, or transposed.
enum class Transpose : bool { no, yes };

namespace detail {

/// By the device library or, if it is missing or has no kernel for the problem, with one element per thread.
template <class Execution, class Element, class Out>
void device_product(const Execution& execution, const Product<Element, Out>& product) {
  if constexpr (LibraryGemm<Execution>::available && RealElement<Element>) {
    const auto [problem, operands] = column_major(product, tf32_choice());
    if (product.k != 0 && LibraryGemm<Execution>::multiply(execution, problem, operands))
      return;
  }
  run_product(execution, product);
}

/// The product of matching shapes, by the target's best implementation.
template <class Execution, class Element, class Out>
void start_product(const Execution& execution, const Product<Element, Out>& product) {
  if (product.m == 0 || product.n == 0)
    return;
  moves("sw::matmul", execution, (product.m + product.n) * product.k * sizeof(Element),
        (product.beta == 0 ? 1 : 2) * product.m * product.n * sizeof(Out));
  if constexpr (counts_only<Execution>)
    shardwright::detail::count_flops(2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                                     static_cast<double>(product.k));
  else if constexpr (!runs_on_host<Execution>)
    device_product(execution, product);
  else if constexpr (is_narrow<Element>)
    widened_product(execution, product);
  else
    number_product(execution, product);
}

} // namespace detail

/// @brief C = alpha op(A) op(B) + beta C with row-major matrices; beta = 0 ignores the old content of C.
///
/// On host memory this is the BLAS on the calling thread (see use_single_threaded_blas), on an NVIDIA GPU
/// cuBLAS in stream order, in full precision unless use_tf32 says otherwise; without them Kokkos kernels. The
/// first product of a shape on a stream plans it, and the very first allocates a workspace of 32 MiB: before
/// capturing a graph, run it once. Cost: 2 m n k floating-point operations.
///
/// Products of 16-bit elements are summed in float and rounded once if C is 16-bit too. On the host, blocks
/// of the factors are widened first; the thread keeps up to 3 MB for them.
/// @param a  [m, k], or [k, m] when transposed
/// @param b  [k, n], or [n, k] when transposed
/// @param c  [m, n], not overlapping the factors; of their element type or its AccumulationElement
///
/// OrderedProducts and ReproducibleProducts, on the host, are those of the library's register tiles, with up
/// to 5.5 MB of workspace for each thread, 11 MB for double. ReproducibleProducts of float and 16-bit
/// elements may be added to a FixedPoint C: beta = 1 keeps its old content.
/// @throws InvalidArgument if the shapes do not fit
template <class Execution, KernelMatrix A, KernelMatrix B, KernelMatrix C, class Products = FastProducts>
void matmul(const Execution& execution, const A& a, Transpose transpose_a, const B& b, Transpose transpose_b,
            const C& c, double alpha = 1.0, double beta = 0.0, const Products& products = {}) {
  using Element = typename A::non_const_value_type;
  using Out = typename C::value_type;
  using Number = AccumulationElement<Element>;
  constexpr bool is_term = std::is_same_v<Products, ReproducibleProducts> && std::is_same_v<Number, float> &&
                           std::is_same_v<Out, FixedPoint>;
  static_assert(
      std::is_same_v<Element, typename B::non_const_value_type> &&
          (std::is_same_v<Element, Out> || std::is_same_v<Number, Out> || is_term),
      "matmul: both factors must have the same element type, and the result must have that type or its AccumulationElement.");
  const auto left = span_of(a);
  const auto right = span_of(b);
  const auto out = span_of(c);
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const std::size_t m = out.rows;
  const std::size_t n = out.columns;
  const std::size_t k = ta ? left.rows : left.columns;
  require((ta ? left.columns : left.rows) == m, "matmul", "C must have as many rows as op(A).");
  require((tb ? right.rows : right.columns) == n, "matmul", "C must have as many columns as op(B).");
  require((tb ? right.columns : right.rows) == k, "matmul",
          "op(B) must have as many rows as op(A) has columns.");
  const detail::Product<Element, Out> product{m,
                                              n,
                                              k,
                                              static_cast<Number>(alpha),
                                              {left.data, left.stride, ta},
                                              {right.data, right.stride, tb},
                                              static_cast<Number>(beta),
                                              out.data,
                                              out.stride};
  if constexpr (std::is_same_v<Products, FastProducts>)
    detail::start_product(execution, product);
  else
    detail::start_product(execution, product, products);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
