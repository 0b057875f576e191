// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief SwiGLU of sharded tensors: the gate and the value lie side by side in dimension rank - 2.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>
#include <shardwright/tensor/matmul.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout after SwiGLU of [..., 2, hidden]: the dimension of extent 2 is gone; it must not be sharded.
template <LayoutType GateUp>
using SwigluLayout =
    ReductionLayout<Sum, GateUp::tensor_rank - 2, ElementwiseNonlinearLayout<operation::swiglu, GateUp>>;

namespace detail {

/// The local block as [product of all but the last two extents, product of those].
template <class Tensor>
[[nodiscard]] auto pair_rows(const Tensor& tensor) {
  return matrix_at(tensor, static_cast<std::size_t>(Tensor::tensor_rank - 2));
}

template <LayoutType GateUp>
struct SwigluCheck {
  static constexpr bool value = [] {
    if constexpr (GateUp::tensor_rank >= 2)
      return GateUp::value.shard(GateUp::tensor_rank - 2).empty();
    else
      return any_invalid<GateUp>;
  }();
  static_assert(
      value,
      "swiglu: the dimension that holds gate and value side by side must not be sharded (shard the last one)");
};

} // namespace detail

/// @brief out[..., h] = silu(gate_up[..., 0, h]) * gate_up[..., 1, h] (Shazeer, arXiv 2002.05202, section 2).
/// @throws InvalidArgument where the second last extent is not 2.
template <LayoutType L, class E, class Target>
[[nodiscard]] auto swiglu(const ShardedTensor<L, E, Target>& gate_up,
                          SourceLocation where = SourceLocation::current()) {
  using Element = std::remove_const_t<E>;
  if constexpr (!detail::SwigluCheck<L>::value || detail::any_invalid<SwigluLayout<L>>) {
    return ShardedTensor<InvalidLayout, Element, Target>(gate_up.resources(), {});
  } else {
    constexpr std::size_t rank = L::tensor_rank;
    if (gate_up.shape()[rank - 2] != 2) {
      detail::reject_operation("swiglu",
                               "the second last extent must be 2, gate and value, but the shape is " +
                                   detail::text_of(gate_up.shape()) + " (lay them side by side)",
                               gate_up.core(), where);
    }
    std::array<std::int64_t, rank - 1> shape{};
    for (std::size_t d = 0; d + 2 < rank; ++d)
      shape[d] = gate_up.shape()[d];
    shape[rank - 2] = gate_up.shape()[rank - 1];
    ShardedTensor<SwigluLayout<L>, Element, Target> out(gate_up.resources(), shape);
    kernels::swiglu_forward(gate_up.execution(), detail::pair_rows(gate_up), out.mutable_local_matrix());
    return out;
  }
}

/// @brief The gradient of swiglu's input from that of its output and the input of the forward pass.
template <LayoutType L, class G, class E, class Target>
[[nodiscard]] ShardedTensor<L, std::remove_const_t<E>, Target>
swiglu_gradient(const ShardedTensor<SwigluLayout<L>, G, Target>& gradient,
                const ShardedTensor<L, E, Target>& gate_up) {
  ShardedTensor<L, std::remove_const_t<E>, Target> out(gate_up.resources(), gate_up.shape());
  kernels::swiglu_backward(gate_up.execution(), detail::pair_rows(gate_up), gradient.local_matrix(),
                           detail::mutable_matrix_at(out, L::tensor_rank - 2));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
