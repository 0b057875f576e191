// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks that the typed operations on tensors share: one mesh, agreeing extents, elements and
/// targets.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

[[noreturn]] void reject_operation(const char* operation, const std::string& sentence, const MeshCore& core,
                                   SourceLocation where);
[[noreturn]] void reject_second_mesh(const char* operation, const MeshCore& core, SourceLocation where);

/// The two tensors of an operation must be on the same mesh: otherwise their blocks would not match.
template <class First, class Second>
void require_one_mesh(const char* operation, const First& first, const Second& second, SourceLocation where) {
  if constexpr (AnyShardedTensor<First>)
    first.require_memory(where);
  if constexpr (AnyShardedTensor<Second>)
    second.require_memory(where);
  if (&first.core() != &second.core())
    reject_second_mesh(operation, first.core(), where);
}

[[noreturn]] void reject_shape(const char* operation, const char* what, std::span<const std::int64_t> shape,
                               std::span<const std::int64_t> wanted, const MeshCore& core,
                               SourceLocation where);

template <std::size_t rank>
void require_shape(const char* operation, const char* what, const std::array<std::int64_t, rank>& shape,
                   const std::array<std::int64_t, rank>& wanted, const MeshCore& core, SourceLocation where) {
  if (shape != wanted)
    reject_shape(operation, what, shape, wanted, core, where);
}

[[noreturn]] void reject_extents(const char* operation, const char* sentence,
                                 std::span<const std::int64_t> shape, std::span<const std::int64_t> other,
                                 const MeshCore& core, SourceLocation where);

/// Extents [first, first + count) of one shape must be those of another from `second`.
template <std::size_t rank, std::size_t other_rank>
void require_equal_extents(const char* operation, const char* sentence,
                           const std::array<std::int64_t, rank>& shape, std::size_t first,
                           const std::array<std::int64_t, other_rank>& other, std::size_t second,
                           std::size_t count, const MeshCore& core, SourceLocation where) {
  for (std::size_t d = 0; d < count; ++d)
    if (shape[first + d] != other[second + d])
      reject_extents(operation, sentence, shape, other, core, where);
}

template <class LayoutType, class Like>
using ResultTensor = ShardedTensor<LayoutType, typename Like::value_type, typename Like::target>;

/// Two operands that one kernel can combine; the trace shows both types.
template <class First, class Second> struct SameElementAndTarget {
  static_assert(std::is_same_v<typename First::value_type, typename Second::value_type>,
                "Operation: both tensors must have the same element type (convert one first)");
  static_assert(std::is_same_v<typename First::target, typename Second::target>,
                "Operation: both tensors must be on the same target (copy one first)");
  static constexpr bool value = std::is_same_v<typename First::value_type, typename Second::value_type> &&
                                std::is_same_v<typename First::target, typename Second::target>;
};

/// An operand of an operation whose results need not be integers, unless it says so; the trace names it.
template <class Operation, class Element> struct RealOperand {
  static constexpr bool value =
      RealElement<Element> ||
      (!ComplexElement<Element> && requires { requires Operation::takes_integers; }) ||
      (ComplexElement<Element> && requires { requires Operation::takes_complex; });
  static_assert(
      value || !ComplexElement<Element>,
      "Operation: the elements must be real, because this function is not defined for complex numbers (sums, differences, products, quotients, scale and conj are)");
  static_assert(
      value || ComplexElement<Element>,
      "Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)");
};

/// The result of an elementwise operation. On a Reproducible target it must not be a sum that ranks have yet
/// to add, as those of the operands were. The trace shows its layout.
template <class Result> struct RoundedOnce {
  static constexpr bool of_ranks = [] {
    for (int axis = 0; axis < Result::layout::axis_list::size; ++axis)
      if (Result::layout::value.is_partial(axis) && is_linear(Result::layout::value.op(axis)))
        return true;
    return false;
  }();
  static constexpr bool value =
      !is_reproducible<typename Result::target> || !FieldElement<typename Result::value_type> || !of_ranks;
  static_assert(
      value,
      "Operation: on a Reproducible target no operand may be Partial, because each rank would round its part of the result, and the parts depend on the mesh (redistribute the operand first)");
};

/// The destination of an `_into` form must have the layout and element type of the result.
template <class Result, class Out> struct DestinationOf {
  static_assert(
      std::is_same_v<typename Result::layout, typename Out::layout>,
      "Operation: the destination must have the layout of the result (redistribute the result, or declare the destination with the layout that the trace shows)");
  static_assert(
      std::is_same_v<typename Result::value_type, typename Out::element>,
      "Operation: the destination must own memory of the operands' element type (give a tensor, not a read-only handle)");
  static constexpr bool value = std::is_same_v<typename Result::layout, typename Out::layout> &&
                                std::is_same_v<typename Result::value_type, typename Out::element>;
};

/// Names the operand that is not a sharded tensor.
template <class Given> struct ShardedOperand {
  static_assert(
      Operand<Given>,
      "Operation: sharded and plain tensors must not be mixed (make a ShardedTensor on the mesh, and fill or scatter the plain data into it)");
};

/// The result type of an operation with one plain operand, so that a chained call prints no second error.
template <class First, class Second>
[[nodiscard]] auto mixed_operands(const First& first, const Second& second, SourceLocation where) {
  static_assert(sizeof(ShardedOperand<First>) != 0 && sizeof(ShardedOperand<Second>) != 0);
  if constexpr (Operand<First>)
    return ShardedTensor<InvalidLayout, typename First::value_type, typename First::target>(first.resources(),
                                                                                            {}, where);
  else
    return ShardedTensor<InvalidLayout, typename Second::value_type, typename Second::target>(
        second.resources(), {}, where);
}

/// One valid operand and something else.
template <class First, class Second>
concept MixedOperands = bool(Operand<First> != Operand<Second>);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void reject_operation(const char* operation, const std::string& sentence,
                                         const MeshCore& core, SourceLocation where) {
  throw InvalidArgument(std::string(operation) + ": " + sentence,
                        {.rank = core.world().rank(), .operation = operation, .where = where});
}

SHARDWRIGHT_INLINE void reject_second_mesh(const char* operation, const MeshCore& core,
                                           SourceLocation where) {
  reject_operation(operation,
                   "the tensors must be on one mesh, but they are on two (make both from one DeviceMesh)",
                   core, where);
}

SHARDWRIGHT_INLINE void reject_shape(const char* operation, const char* what,
                                     std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> wanted, const MeshCore& core,
                                     SourceLocation where) {
  reject_operation(operation,
                   std::string("the ") + what + " must have the shape " + text_of(wanted) + ", but it has " +
                       text_of(shape) + " (check the extents of the operands)",
                   core, where);
}

SHARDWRIGHT_INLINE void reject_extents(const char* operation, const char* sentence,
                                       std::span<const std::int64_t> shape,
                                       std::span<const std::int64_t> other, const MeshCore& core,
                                       SourceLocation where) {
  reject_operation(operation,
                   std::string(sentence) + ", but the shapes are " + text_of(shape) + " and " +
                       text_of(other) + " (check the order of the operands)",
                   core, where);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
