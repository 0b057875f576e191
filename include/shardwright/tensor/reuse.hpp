// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Results that reuse the memory of an operand without other handles.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Whether an operand is a moved-in read-only handle, whose memory a result may reuse.
template <class Given> inline constexpr bool gives_memory = false;
template <class L, class Element, class Target>
inline constexpr bool gives_memory<ShardedTensor<L, const Element, Target>&&> = true;

/// The memory of an operand as a result of its shape.
template <class Result, class L, class Element, class Target>
[[nodiscard]] Result taken(ShardedTensor<L, const Element, Target>&& operand) {
  // Whether memory is shared may differ between ranks, so its metadata must not depend on that.
  TensorAccess::buffer(operand).reduced_from() = {};
  return TensorAccess::take<Result>(std::move(operand));
}

/// A result of an operand's shape: in its memory if this is its last handle, which then loses it, else in new
/// memory. Kernels that read an element before they write it may work in place.
/// @param where the operation, named in an out-of-memory error.
template <class Result, class Left> [[nodiscard]] Result reuse_for(SourceLocation where, Left&& left) {
  if constexpr (gives_memory<Left&&>)
    if (TensorAccess::reusable(left))
      return taken<Result>(std::move(left));
  return Result(left.resources(), left.shape(), where);
}
/// The same for the shape of the left one of two operands; the right one gives its memory only if it has as
/// many dimensions.
template <class Result, class Left, class Right>
[[nodiscard]] Result reuse_for(SourceLocation where, Left&& left, Right&& right) {
  if constexpr (gives_memory<Right&&> && std::remove_cvref_t<Right>::tensor_rank == Result::tensor_rank) {
    bool left_gives = false;
    if constexpr (gives_memory<Left&&>)
      left_gives = TensorAccess::reusable(left);
    if (!left_gives && TensorAccess::reusable(right))
      return taken<Result>(std::move(right));
  }
  return reuse_for<Result>(where, std::forward<Left>(left));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A result with the shape and layout of an operand, and the operand's elements, in the same memory or
/// not.
template <class L, class Element, class Target> struct Reused {
  const Element* from;
  ShardedTensor<L, Element, Target> out;
};
/// @brief A result of an operation, for kernels that read each element before they write it: in the operand's
/// memory if that is moved in and nothing else refers to it, else in new memory.
/// @param where the operation, named in an out-of-memory error
template <class L, class Element, class Target>
[[nodiscard]] Reused<L, Element, Target> reuse(ShardedTensor<L, const Element, Target>&& operand,
                                               SourceLocation where = SourceLocation::current()) {
  const Element* const from = operand.data();
  return {from, detail::reuse_for<ShardedTensor<L, Element, Target>>(where, std::move(operand))};
}
template <class L, class Element, class Target>
[[nodiscard]] Reused<L, std::remove_const_t<Element>, Target>
reuse(const ShardedTensor<L, Element, Target>& operand, SourceLocation where = SourceLocation::current()) {
  return {operand.data(),
          detail::reuse_for<ShardedTensor<L, std::remove_const_t<Element>, Target>>(where, operand)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// An operand as an owner: itself if this is its last handle, else a copy.
template <class L, class Element, class Target>
[[nodiscard]] ShardedTensor<L, Element, Target> owned(ShardedTensor<L, const Element, Target>&& operand) {
  if (!TensorAccess::reusable(operand))
    return operand.clone();
  return taken<ShardedTensor<L, Element, Target>>(std::move(operand));
}
template <AnyShardedTensor Tensor> [[nodiscard]] auto owned(const Tensor& operand) { return operand.clone(); }

/// left + right, in the memory of one of them if it has no other handle.
template <class L, class Element, class Target>
[[nodiscard]] ShardedTensor<L, const Element, Target> sum_of(ShardedTensor<L, const Element, Target> left,
                                                             ShardedTensor<L, const Element, Target> right) {
  const auto first = vector_of(left);
  const auto second = vector_of(right);
  auto out = reuse_for<ShardedTensor<L, Element, Target>>({}, std::move(right), std::move(left));
  if (out.local_size() > 0)
    kernels::add(out.execution(), first, second, mutable_vector_of(out));
  return TensorAccess::take<ShardedTensor<L, const Element, Target>>(std::move(out));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
