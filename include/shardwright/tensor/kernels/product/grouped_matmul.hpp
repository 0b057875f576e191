// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Products of groups of rows with a matrix for each group, and the gradients of these matrices.

#include <shardwright/tensor/kernels/product/gemm_group.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && defined(SHARDWRIGHT_WITH_CUBLAS)
#include <shardwright/tensor/kernels/product/cuda_gemm_group.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// The rows of one group.
struct GroupOfRows {
  std::size_t begin;
  std::size_t count;

  [[nodiscard]] static GroupOfRows of(std::span<const std::int64_t> first_rows, std::size_t group) {
    const auto begin = static_cast<std::size_t>(first_rows[group]);
    return {begin, static_cast<std::size_t>(first_rows[group + 1]) - begin};
  }
};

/// Starts product(g) for each of `count` groups: in one call if the device library has one, else one after
/// the other.
template <class Element, class Out, class Execution, class ProductOf, class Products = FastProducts>
void run_group(const Execution& execution, std::size_t count, const ProductOf& product,
               [[maybe_unused]] const Products& products = {}) {
  if constexpr (LibraryGemmGroup<Execution>::available && RealElement<Element> &&
                std::is_same_v<Products, FastProducts>) {
    static thread_local GemmGroup group;
    group.clear();
    for (std::size_t g = 0; g < count; ++g) {
      const Product<Element, Out> p = product(g);
      if (p.m == 0 || p.n == 0 || p.k == 0)
        continue;
      const auto [problem, operands] = column_major(p, tf32_choice());
      group.add(problem, operands);
    }
    // A replay might read the host's arrays again, and an error of the library would end the capture.
    if (group.size() > 1 && shardwright::detail::CaptureMark::spoil())
      return; // omitted, since the capture is discarded
    if (group.size() > 1 && LibraryGemmGroup<Execution>::multiply(execution, group)) {
      for (std::size_t g = 0; g < count; ++g) // a product of depth 0 is beta times the old value
        if (const Product<Element, Out> p = product(g); p.k == 0)
          start_product(execution, p);
      return;
    }
  }
  for (std::size_t g = 0; g < count; ++g) {
    if constexpr (std::is_same_v<Products, FastProducts>)
      start_product<Execution, Element, Out>(execution, product(g));
    else
      start_product<Execution, Element, Out>(execution, product(g), products);
  }
}

} // namespace detail

/// @brief Rows [first_rows[g], first_rows[g + 1]) of `out` = the same rows of `rows` times op(matrix g of
/// `weights`).
///
/// On an NVIDIA GPU with cuBLAS 12.5 or newer, one call for all groups; elsewhere one matmul() for each.
/// Cost: 2 |rows| |in| |out| floating-point operations.
/// @param first_rows [groups + 1] on the host, ascending from 0 to the number of rows
/// @param weights    [groups, in, out], or [groups, out, in] when transposed
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Rows, KernelView Weights, KernelMatrix Out,
          class Products = FastProducts>
void grouped_matmul(const Execution& execution, std::span<const std::int64_t> first_rows, const Rows& rows,
                    const Weights& weights, Transpose transpose, const Out& out,
                    const Products& products = {}) {
  using Element = typename Rows::non_const_value_type;
  const bool turned = transpose == Transpose::yes;
  const std::size_t in = rows.extent(1);
  const std::size_t columns = out.extent(1);
  const std::size_t groups = first_rows.size() - 1;
  require(weights.extent(0) == groups && weights.extent(turned ? 2 : 1) == in &&
              weights.extent(turned ? 1 : 2) == columns,
          "grouped_matmul", "the weights must be [groups, in, out], or [groups, out, in] transposed.");
  require(rows.extent(0) == out.extent(0) && rows.extent(0) == static_cast<std::size_t>(first_rows.back()),
          "grouped_matmul", "both matrices must have the rows of all groups.");
  detail::run_group<Element, Element>(
      execution, groups,
      [&](std::size_t g) {
        const auto own = detail::GroupOfRows::of(first_rows, g);
        return detail::Product<Element>{own.count,
                                        columns,
                                        in,
                                        1,
                                        {rows.data() + own.begin * in, in, false},
                                        {weights.data() + g * in * columns, turned ? in : columns, turned},
                                        0,
                                        out.data() + own.begin * columns,
                                        columns};
      },
      products);
}

/// @brief Matrix g of `out` = rows_g^T gradient_g + beta times its old value: 0 for a group without rows if
/// beta is 0.
///
/// Started as grouped_matmul; if `out` is wider than the factors, by one product for each group.
/// @param rows     [rows, in]
/// @param gradient [rows, out]
/// @param out      [groups, in, out]; of their element type or its AccumulationElement
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Rows, KernelMatrix Gradient, KernelView Out>
void grouped_weight_gradient(const Execution& execution, std::span<const std::int64_t> first_rows,
                             const Rows& rows, const Gradient& gradient, const Out& out, double beta) {
  using Element = typename Rows::non_const_value_type;
  using To = typename Out::value_type;
  const std::size_t in = rows.extent(1);
  const std::size_t columns = gradient.extent(1);
  const std::size_t groups = first_rows.size() - 1;
  require(out.extent(0) == groups && out.extent(1) == in && out.extent(2) == columns,
          "grouped_weight_gradient", "the gradients must be [groups, in, out].");
  require(rows.extent(0) == gradient.extent(0) &&
              rows.extent(0) == static_cast<std::size_t>(first_rows.back()),
          "grouped_weight_gradient", "both matrices must have the rows of all groups.");
  detail::run_group<Element, To>(execution, groups, [&](std::size_t g) {
    const auto own = detail::GroupOfRows::of(first_rows, g);
    return detail::Product<Element, To>{in,
                                        columns,
                                        own.count,
                                        1,
                                        {rows.data() + own.begin * in, in, true},
                                        {gradient.data() + own.begin * columns, columns, false},
                                        static_cast<AccumulationElement<Element>>(beta),
                                        out.data() + g * in * columns,
                                        columns};
  });
}

/// @brief The same of FixedPoint: the products of the rows of each leaf are added as floats, and each sum is
/// a term of the gradient of its group.
/// @param leaf_rows  where leaves begin, ascending, and the end; each is within a group and has at most
/// most_leaf rows
/// @param add        false overwrites `out`
/// @param fault      becomes true if a term does not fit
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Rows, KernelMatrix Gradient, KernelView Out>
void grouped_weight_gradient(const Execution& execution, std::span<const std::int64_t> first_rows,
                             std::span<const std::int64_t> leaf_rows, const Rows& rows,
                             const Gradient& gradient, const Out& out, bool add, bool* fault) {
  using Element = typename Rows::non_const_value_type;
  const std::size_t in = rows.extent(1), columns = gradient.extent(1);
  const std::size_t groups = first_rows.size() - 1;
  require(out.extent(0) == groups && out.extent(1) == in && out.extent(2) == columns &&
              rows.extent(0) == gradient.extent(0) && leaf_rows.back() == first_rows.back() &&
              rows.extent(0) == static_cast<std::size_t>(first_rows.back()),
          "grouped_weight_gradient",
          "the gradients must be [groups, in, out], and both matrices must have the rows of all leaves.");
  std::size_t leaf = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first_leaf = leaf;
    while (leaf_rows[leaf] < first_rows[g + 1])
      ++leaf;
    ReproducibleProducts order;
    order.leaves = leaf_rows.subspan(first_leaf, leaf - first_leaf + 1);
    order.fault = fault;
    const auto own = detail::GroupOfRows::of(first_rows, g);
    detail::start_product(
        execution,
        detail::Product<Element, FixedPoint>{in,
                                             columns,
                                             own.count,
                                             1,
                                             {rows.data() + own.begin * in, in, true},
                                             {gradient.data() + own.begin * columns, columns, false},
                                             add ? 1.0F : 0.0F,
                                             out.data() + g * in * columns,
                                             columns},
        order);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
