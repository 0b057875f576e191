// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Swaps two dimensions of a tensor, with their shards.

#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/transpose.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace operation {

/// @brief Swaps dimensions `first` and `second`, in the gradient as well.
template <int first, int second> struct Transpose {
  static constexpr std::string_view name = "transpose";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = TransposeLayout<typename X::layout, first, second>;
    using Result = ShardedTensor<L, typename X::value_type, typename X::target>;
    if constexpr (detail::any_invalid<L>) {
      return Result(x.resources(), {}, where);
    } else {
      constexpr auto low = static_cast<std::size_t>(first < second ? first : second);
      constexpr auto high = static_cast<std::size_t>(first < second ? second : first);
      auto shape = x.shape();
      std::swap(shape[low], shape[high]);
      Result out(x.resources(), shape, where);
      kernels::TransposeShape local;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const auto extent = static_cast<std::size_t>(x.local_shape()[d]);
        (d < low     ? local.outer
         : d == low  ? local.first
         : d < high  ? local.middle
         : d == high ? local.second
                     : local.inner) *= extent;
      }
      kernels::transpose(x.execution(), detail::vector_of(x), detail::mutable_vector_of(out), local);
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    return forward({}, y_gradient);
  }
};

} // namespace operation

/// @brief x with dimensions `first` and `second` swapped, together with the axes that shard them.
///
/// No communication. A Partial is kept. Cost: one pass over memory, not in place.
template <int first, int second, Operand X>
[[nodiscard]] auto transpose(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Transpose<first, second>{}, where, std::forward<X>(x));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
