// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How products of tensors on a Reproducible target are added, by the layouts of their factors.

#include <shardwright/core/fixed_point.hpp>
#include <shardwright/layout/grid_product.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/product/ordered.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// How products on a target are added, if a caller asks for `Products`.
template <class Products, class Target>
using ProductsOn = std::conditional_t<is_reproducible<Target>, kernels::ReproducibleProducts, Products>;

/// Whether a rank computes each element of a result in one product.
template <class Products, class Left, class Right, class L> struct ProductIsWhole {
  static constexpr bool value = !std::is_same_v<Products, kernels::OrderedProducts> ||
                                (!L::value.has_partial() && !over_grid<Left, Right>);
  static_assert(
      value,
      "matmul: with OrderedProducts the contracted dimension must not be sharded, nor an operand Partial, because the ranks' parts are rounded before they are added (redistribute the operands first)");
};

/// The dimensions of the left factor that a product contracts.
struct ContractedDimensions {
  int first;
  int last; ///< The one after them.

  /// Those of them that are sharded.
  [[nodiscard]] constexpr int sharded(const LayoutValue& layout) const {
    int count = 0;
    for (int d = first; d < last; ++d)
      count += layout.shard(d).empty() ? 0 : 1;
    return count;
  }
  /// The first of them that is sharded, or `last`.
  [[nodiscard]] constexpr int first_sharded(const LayoutValue& layout) const {
    int d = first;
    while (d < last && layout.shard(d).empty())
      ++d;
    return d;
  }
};

/// What a product on a Reproducible target must be; the trace shows its layouts.
template <class Left, class Right, int sharded> struct ReproducibleProduct {
  static_assert(
      !Left::value.has_partial() && !Right::value.has_partial(),
      "matmul: on a Reproducible target no operand may be Partial, because the products with the parts of a sum would be rounded before they are added (redistribute the operand first)");
  static_assert(
      sharded <= 1,
      "matmul: on a Reproducible target at most one contracted dimension may be sharded, because its parts are added in a tree (gather the others, or make the result the gradient of a Parameter)");
  static_assert(
      !over_grid<Left, Right>,
      "matmul: on a Reproducible target the contracted dimensions must be sharded alike, because panels of a grid are added in an order that depends on the mesh (redistribute one operand)");
  static constexpr bool value =
      !Left::value.has_partial() && !Right::value.has_partial() && sharded <= 1 && !over_grid<Left, Right>;
};

/// This rank's part of a contraction over dimensions [first, last) of a factor of a shape, of which `sharded`
/// is sharded.
/// @throws InvalidArgument if the extents cannot be cut into ordered_parts, alike on all ranks
[[nodiscard]] kernels::ReproducibleProducts
ordered_contraction(const char* operation, const MeshCore& core, const LayoutValue& layout,
                    std::span<const std::string_view> axes, std::span<const std::int64_t> shape,
                    ContractedDimensions contracted, SourceLocation where);
/// The blocks of tokens whose products form the terms of a FixedPoint gradient.
/// @throws InvalidArgument if a rank's tokens are no whole number of blocks, alike on all ranks
[[nodiscard]] std::size_t ordered_leaf(const char* operation, const MeshCore& core, const LayoutValue& layout,
                                       std::span<const std::string_view> axes,
                                       std::span<const std::int64_t> tokens, SourceLocation where);

/// The order in which Form adds the products of two tensors to a result of type Out.
template <class Form, class Out, class Left, class Right>
[[nodiscard]] kernels::ReproducibleProducts ordered_products(const Left& left, const Right&, bool* fault,
                                                             SourceLocation where) {
  using L = typename Left::layout;
  constexpr ContractedDimensions contracted = Form::template contracted<Left, Right>;
  constexpr bool terms = std::is_same_v<Out, FixedPoint>;
  constexpr int sharded = terms ? 0 : contracted.sharded(L::value);
  kernels::ReproducibleProducts order;
  if constexpr (ReproducibleProduct<L, typename Right::layout, sharded>::value) {
    const std::span<const std::int64_t> shape(left.shape());
    if constexpr (terms)
      order.leaf = ordered_leaf(Form::name, left.core(), L::value, L::axes,
                                shape.first(static_cast<std::size_t>(contracted.last)), where);
    else if constexpr (sharded == 1)
      order = ordered_contraction(Form::name, left.core(), L::value, L::axes, shape, contracted, where);
  }
  order.fault = fault;
  return order;
}

/// Computes the product of two tensors: on a Reproducible target, in the order that their layouts give.
/// @param fault  null for results other than FixedPoint
template <class Form, class Products, class Left, class Right, class Out>
void run_product(const Left& left, const Right& right, Out& out, double beta, bool* fault,
                 SourceLocation where) {
  if constexpr (is_reproducible<typename Left::target>) {
    if constexpr (Out::layout::value.has_partial() && !std::is_same_v<typename Out::value_type, FixedPoint>)
      if (beta != 0)
        reject_operation(
            Form::name,
            "on a Reproducible target a product that ranks share must not be added to its destination, because the sum of both would be rounded before ranks add their parts (give beta 0, and add when the sums are complete)",
            left.core(), where);
    Form::run(left, right, out, beta,
              ordered_products<Form, typename Out::value_type>(left, right, fault, where), where);
  } else {
    Form::run(left, right, out, beta, Products{}, where);
  }
}

/// How a kernel must add the products of two tensors that Form contracts.
template <class Form, class Out, class Left, class Right>
[[nodiscard]] auto kernel_products(const Left& left, const Right& right, bool* fault = nullptr,
                                   SourceLocation where = {}) {
  if constexpr (is_reproducible<typename Left::target>)
    return ordered_products<Form, Out>(left, right, fault, where);
  else
    return kernels::FastProducts{};
}

/// Where a kernel notes a term that its FixedPoint sum cannot hold; null for other gradients.
template <class Slot> [[nodiscard]] bool* fault_of(const Slot& slot) {
  if constexpr (requires { slot.fault; })
    return slot.fault;
  else
    return nullptr;
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE kernels::ReproducibleProducts
ordered_contraction(const char* operation, const MeshCore& core, const LayoutValue& layout,
                    std::span<const std::string_view> axes, std::span<const std::int64_t> shape,
                    ContractedDimensions contracted, SourceLocation where) {
  const auto dimension = static_cast<std::size_t>(contracted.first_sharded(layout));
  std::int64_t runs = 1, length = 1;
  for (auto d = static_cast<std::size_t>(contracted.first); d < static_cast<std::size_t>(contracted.last);
       ++d)
    (d < dimension ? runs : length) *= shape[d];
  const std::int64_t ranks = ranks_along(core, layout, axes, static_cast<int>(dimension));
  if (length % ordered_parts != 0 || ordered_parts % ranks != 0 || shape[dimension] % ranks != 0)
    reject_operation(operation,
                     "on a Reproducible target a contracted dimension that may be sharded must have " +
                         std::to_string(ordered_parts) +
                         " equal parts, and each rank some of them, but the extents are " + text_of(shape) +
                         ", and " + std::to_string(ranks) + " ranks share dimension " +
                         std::to_string(dimension) + " (choose a multiple of " +
                         std::to_string(ordered_parts) + ", and 1, 2, 4 or 8 ranks)",
                     core, where);
  return {.parts = static_cast<std::size_t>(ordered_parts / ranks), .runs = static_cast<std::size_t>(runs)};
}

SHARDWRIGHT_INLINE std::size_t ordered_leaf(const char* operation, const MeshCore& core,
                                            const LayoutValue& layout, std::span<const std::string_view> axes,
                                            std::span<const std::int64_t> tokens, SourceLocation where) {
  const std::int64_t leaf = leaf_rows(tokens);
  if (tokens.empty())
    return static_cast<std::size_t>(leaf);
  const std::int64_t ranks = ranks_along(core, layout, axes, static_cast<int>(tokens.size()) - 1);
  if (leaf > 1 && (tokens.back() % ranks != 0 || tokens.back() / ranks % leaf != 0))
    reject_operation(
        operation,
        "on a Reproducible target each rank's tokens must be whole blocks of " + std::to_string(leaf) +
            ", a sixteenth of a sequence or less, but " + std::to_string(ranks) +
            " ranks share sequences of " + std::to_string(tokens.back()) +
            " (choose sequences of a multiple of 16 tokens and 1, 2, 4, 8 or 16 ranks, or of a multiple of " +
            std::to_string(ranks * most_leaf) + " tokens)",
        core, where);
  return static_cast<std::size_t>(leaf);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
