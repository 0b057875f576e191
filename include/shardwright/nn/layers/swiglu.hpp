// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief SwiGLU of sharded tensors: gate and value are side by side in dimension rank - 2.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/reuse.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout after SwiGLU of [..., 2, hidden]: the dimension of extent 2, which must not be sharded, is
/// removed.
template <LayoutType GateUp>
using SwigluLayout =
    ReductionLayout<Sum, GateUp::tensor_rank - 2, ElementwiseNonlinearLayout<operation::swiglu, GateUp>>;

namespace detail {

/// The local block as [product of all but the last two extents, product of those].
template <class Tensor> [[nodiscard]] auto pair_rows(const Tensor& tensor) {
  return matrix_at(tensor, static_cast<std::size_t>(Tensor::tensor_rank - 2));
}

template <LayoutType GateUp> struct SwigluCheck {
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

namespace operation {

/// @brief SwiGLU with its gradient, which is computed in the input's memory if that is not shared.
struct SwiGlu {
  static constexpr std::string_view name = "swiglu";
  static constexpr bool gradient_reads_input = true;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor GateUp>
  [[nodiscard]] auto forward(SourceLocation where, const GateUp& gate_up) const {
    using L = typename GateUp::layout;
    using Element = typename GateUp::value_type;
    using Target = typename GateUp::target;
    if constexpr (!detail::SwigluCheck<L>::value || detail::any_invalid<SwigluLayout<L>>) {
      return ShardedTensor<InvalidLayout, Element, Target>(gate_up.resources(), {});
    } else {
      constexpr std::size_t rank = L::tensor_rank;
      if (gate_up.shape()[rank - 2] != 2) {
        detail::reject_operation("swiglu",
                                 "the second-to-last extent must be 2, gate and value, but the shape is " +
                                     detail::text_of(gate_up.shape()) + " (lay them side by side)",
                                 gate_up.core(), where);
      }
      std::array<std::int64_t, rank - 1> shape{};
      for (std::size_t d = 0; d + 2 < rank; ++d)
        shape[d] = gate_up.shape()[d];
      shape[rank - 2] = gate_up.shape()[rank - 1];
      ShardedTensor<SwigluLayout<L>, Element, Target> out(gate_up.resources(), shape, where);
      kernels::swiglu_forward(gate_up.execution(), detail::pair_rows(gate_up), out.mutable_local_matrix());
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor GateUp, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& gradient, GateUp&& gate_up, const Y&) const {
    const auto from = detail::pair_rows(gate_up);
    auto out = reuse(std::forward<GateUp>(gate_up)).out;
    kernels::swiglu_backward(out.execution(), from, gradient.local_matrix(),
                             detail::mutable_matrix_at(out, std::remove_cvref_t<GateUp>::tensor_rank - 2));
    return out;
  }
};

} // namespace operation

/// @brief out[..., h] = silu(gate_up[..., 0, h]) * gate_up[..., 1, h] (Shazeer, arXiv 2002.05202, section 2).
/// @throws InvalidArgument if the second-to-last extent is not 2.
template <Operand GateUp>
[[nodiscard]] auto swiglu(GateUp&& gate_up, SourceLocation where = SourceLocation::current()) {
  return apply(operation::SwiGlu{}, where, std::forward<GateUp>(gate_up));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
