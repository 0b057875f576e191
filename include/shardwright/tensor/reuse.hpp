// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Results that reuse the memory of an operand without other handles.

#include <shardwright/tensor/elementwise/map_kernels.hpp>
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

/// A result with an operand's shape, and a pointer to the operand's elements: kernels that read an element
/// before they write it may work in place.
template <class L, class Element, class Target> struct Reused {
  const Element* from;
  ShardedTensor<L, Element, Target> out;
};

/// The operand's memory if this is its last handle, which then loses it; else new memory.
/// @param where the operation, named in an out-of-memory error.
template <class L, class Element, class Target>
[[nodiscard]] Reused<L, Element, Target> reuse(ShardedTensor<L, const Element, Target>&& operand,
                                               SourceLocation where = SourceLocation::current()) {
  using Owner = ShardedTensor<L, Element, Target>;
  const Element* const from = operand.data();
  if (!TensorAccess::reusable(operand))
    return {from, Owner(operand.resources(), operand.shape(), where)};
  // Whether memory is shared may differ between ranks, so its metadata must not depend on that.
  TensorAccess::buffer(operand).reduced_from() = {};
  return {from, TensorAccess::take<Owner>(std::move(operand))};
}
template <class L, class Element, class Target>
[[nodiscard]] Reused<L, std::remove_const_t<Element>, Target>
reuse(const ShardedTensor<L, Element, Target>& operand, SourceLocation where = SourceLocation::current()) {
  return {operand.data(), ShardedTensor<L, std::remove_const_t<Element>, Target>(operand.resources(),
                                                                                 operand.shape(), where)};
}

/// An operand as an owner: itself if this is its last handle, else a copy.
template <class L, class Element, class Target>
[[nodiscard]] ShardedTensor<L, Element, Target> owned(ShardedTensor<L, const Element, Target>&& operand) {
  if (!TensorAccess::reusable(operand))
    return operand.clone();
  TensorAccess::buffer(operand).reduced_from() = {};
  return TensorAccess::take<ShardedTensor<L, Element, Target>>(std::move(operand));
}
template <AnyShardedTensor Tensor> [[nodiscard]] auto owned(const Tensor& operand) { return operand.clone(); }

/// left + right, in the memory of one of them if it has no other handle.
template <class L, class Element, class Target>
[[nodiscard]] ShardedTensor<L, const Element, Target> sum_of(ShardedTensor<L, const Element, Target> left,
                                                             ShardedTensor<L, const Element, Target> right) {
  const auto first = vector_of(left);
  const auto second = vector_of(right);
  auto reused = TensorAccess::reusable(right) ? reuse(std::move(right)) : reuse(std::move(left));
  auto out = std::move(reused.out);
  if (out.local_size() > 0)
    kernels::add(out.execution(), first, second, mutable_vector_of(out));
  return TensorAccess::take<ShardedTensor<L, const Element, Target>>(std::move(out));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
