// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums of all terms of tensors whose bits depend neither on the mesh nor on the order.

#include <shardwright/core/exact_sum.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/placement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/exact_sums.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template <class Op> inline constexpr bool is_ordered = std::is_same_v<Op, OrderedSum>;

/// Whether floating-point numbers of several ranks may be added to a result; the trace shows its layout.
template <class L, class Target> struct SumOfRanks {
  static constexpr bool value = !is_reproducible<Target> || !L::value.has_partial();
  static_assert(
      value,
      "sum: on a Reproducible target a floating-point sum must not be over a sharded dimension, because each rank adds its own part first, and the parts depend on the mesh (use OrderedSum for all elements, or gather the dimension)");
};

/// What an ordered sum of an operand needs.
template <class X> struct OrderedOperand {
  static constexpr bool tensor = AnyShardedTensor<X>;
  static constexpr bool on_host = [] {
    if constexpr (tensor)
      return static_cast<bool>(std::remove_cvref_t<X>::target::host_accessible);
    else
      return true;
  }();
  static constexpr bool value = tensor && on_host;
  static_assert(
      tensor,
      "OrderedSum: the operand must be a tensor, because an ordered sum has no gradient (sum the value(), or use Sum)");
  static_assert(
      on_host,
      "OrderedSum: the tensor must be in host memory, because devices have no kernel of exact sums (copy it to a mesh of host ranks, or use Sum)");
};

/// The exact sum of terms of this rank's elements; both tensors have the same local shape, without halos.
template <class L, class Terms, class X, class Y>
[[nodiscard]] ShardedTensor<L, ExactSum, typename X::target> ordered_sum(const X& x, const Y& y,
                                                                         SourceLocation where) {
  ShardedTensor<L, ExactSum, typename X::target> out(x.resources(), {}, where);
  const BufferHandle workspace(
      x.resources().take(kernels::exact_sum_workspace(x.local_size()) * sizeof(ExactSum), where));
  kernels::exact_sum<Terms>(x.execution(), vector_of(x), vector_of(y), out.mutable_data(),
                            static_cast<ExactSum*>(workspace.data()));
  TensorAccess::note_reduction(out, x);
  return out;
}

/// The value of an ordered sum over all ranks.
template <class Sums> [[nodiscard]] double ordered_number(Sums sums, SourceLocation where) {
  const auto whole = redistribute<Layout<0>>(std::move(sums), where);
  if constexpr (counts_only<typename Sums::target>) {
    return 1; // the value of every number in a dry run
  } else {
    wait_for_kernels(whole.execution());
    return whole.data()->value();
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
