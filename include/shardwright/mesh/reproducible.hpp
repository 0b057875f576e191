// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The target of training whose bits do not depend on the mesh.

#include <shardwright/core/element.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/mesh/target.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Like `Base`, but every sum is ordered: its bits do not depend on how the mesh cuts it. As a target
/// is part of every type, ordered and unordered sums do not mix.
///
/// Three rules give that:
/// - Where a mesh may split the terms of an element over ranks (`Partial<Sum, tp>`), the terms form
///   `ordered_parts` equal parts; a part is added in order, and parts join in a binary tree, each node
///   rounded to the element. Ranks hold subtrees: the extents of split axes are powers of two up to
///   `ordered_parts`.
/// - Raw gradients of parameters are FixedPoint. Products add them block by block, of leaf_rows() tokens.
/// - Losses are sums of loss_term(), which doubles add exactly; the squares of a norm are added exactly.
template <Target Base> struct Reproducible : Base {
  static constexpr bool is_reproducible = true;
  static_assert(
      Base::host_accessible,
      "Reproducible: the target must be one of host memory, because the libraries of devices add in an order of their own (train on host ranks, or without Reproducible)");
};

/// @brief True for Reproducible targets.
template <class Where> inline constexpr bool is_reproducible = requires { Where::is_reproducible; };
template <class Where>
requires counts_only<Where>
inline constexpr bool is_reproducible<Where> = is_reproducible<typename Where::base>;

/// @brief Parts of a sum that a mesh may split.
inline constexpr std::int64_t ordered_parts = 8;

namespace detail {

/// The element of a parameter's raw gradients and their sums.
template <class Element, class Where>
using GradientElement = std::conditional_t<is_reproducible<Where>, FixedPoint, AccumulationElement<Element>>;

/// Whether a sum over rows, the gradient of an operand that the rows share, may be of floats.
template <class Where> struct TermsOfParameter {
  static constexpr bool value = !is_reproducible<Where>;
  static_assert(
      value,
      "Reproducible: an operand whose gradient is a sum over the rows of a result, such as a bias, a gain or a table, must be a Parameter, to which terms are added without rounding (make it one, or use the target without Reproducible)");
};

/// A token's loss as a term of a sum: rounded to a multiple of 2^-24. Doubles add such terms exactly, in any
/// order, as long as no sum reaches 2^29; so a LossSum on a Reproducible target must consist of them.
[[nodiscard]] SHARDWRIGHT_FUNCTION inline double loss_term(double loss) noexcept {
  return std::nearbyint(loss * 0x1p24) * 0x1p-24;
}

/// The most products that are added as floats before they become a FixedPoint term.
inline constexpr std::int64_t most_leaf = 256;

/// Tokens of a block whose products are added as floats before they become FixedPoint. It depends on the
/// sequence only, as a mesh may cut it into 16 (eight ranks that each hold two pieces), and divides it.
/// @param tokens the global extents of the dimensions of tokens: [batch, sequence], or only [rows], which a
/// mesh may cut anywhere
[[nodiscard]] constexpr std::int64_t leaf_rows(std::span<const std::int64_t> tokens) noexcept {
  if (tokens.size() < 2)
    return 1;
  const std::int64_t sixteenth = tokens.back() / (2 * ordered_parts);
  std::int64_t rows = 1;
  while (rows < most_leaf && sixteenth % (2 * rows) == 0 && tokens.back() % (2 * rows) == 0 && sixteenth > 0)
    rows *= 2;
  return rows;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
