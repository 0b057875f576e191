// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise sums, differences, products and quotients of two operands, with their gradients.

#include <shardwright/tensor/elementwise/binary.hpp>
#include <shardwright/tensor/kernels/formulas.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @name Arithmetic
/// Of tensors, values on a tape and parameters, as Binary says: the right operand may lack leading dimensions
/// (a bias); `add.into(out, left, right)` writes to an existing tensor. Integers wrap.
/// @{
/// @brief left + right. Partial plus Partial of one linear operation is Partial; Partial plus a complete
/// value is an error. On a tape the sum of two values of the same layout is deferred until it is read.
inline constexpr Binary<operation::Add> add{};
/// @brief left - right; layouts as add.
inline constexpr Binary<operation::Subtract> subtract{};
/// @brief left * right. Partial times replicated is Partial.
inline constexpr Binary<operation::Multiply> multiply{};
/// @brief left / right, of real elements; the right operand must not be Partial. Partial divided by
/// replicated is Partial.
inline constexpr Binary<operation::Divide> divide{};
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
