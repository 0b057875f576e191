// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise operations on sharded tensors and on values of a tape, typed by layout: arithmetic,
/// functions of every element, scaling, conversion.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/tensor/elementwise/with_number.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace operation {

/// @brief x with another element, and its gradient with that of x.
template <class To> struct Convert {
  static constexpr std::string_view name = "convert";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using From = typename X::value_type;
    static_assert(FieldElement<To> && FieldElement<From>,
                  "convert: both element types must be floating-point (rounding to integers is not linear)");
    static_assert(
        ComplexElement<To> == ComplexElement<From> || !FieldElement<To> || !FieldElement<From>,
        "convert: a real tensor must not become a complex one, nor a complex one real, because one of them has a part that the other lacks (rfft and irfft transform between them)");
    using Result = ShardedTensor<ElementwiseLinearLayout<typename X::layout>, To, typename X::target>;
    static_cast<void>(detail::RoundedOnce<Result>::value);
    Result out(x.resources(), x.shape(), where);
    if (x.local_size() > 0)
      kernels::copy(x.execution(), detail::part_vector_of(x), detail::mutable_part_vector_of(out));
    return out;
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    return Convert<typename X::value_type>{}.forward({}, y_gradient);
  }
};

} // namespace operation

/// @brief factor * x; linear, so Partial Sums and Avgs are allowed. A tensor of integers takes only a whole
/// factor, and wraps.
template <Operand X>
[[nodiscard]] auto scale(X&& x, detail::NumberFor<X> factor,
                         SourceLocation where = SourceLocation::current()) {
  return detail::apply_with_number<detail::TimesNumber>(std::forward<X>(x), factor, where);
}
/// @brief tensor = factor * tensor.
/// @throws LifecycleError if the tensor was moved from.
template <AnyShardedTensor Tensor> void scale_in_place(Tensor& tensor, detail::NumberFor<Tensor> factor) {
  using L = typename Tensor::layout;
  if constexpr (!detail::any_invalid<ElementwiseLinearLayout<L>>) {
    using Function = detail::TimesNumber<decltype(factor.value)>;
    tensor.require_memory(factor.where);
    detail::agreed_number<L>(tensor.core(), "scale_in_place", factor.where, "factor", factor.value);
    Elementwise<Function>{Function{factor.value}}.into(tensor, tensor, factor.where);
  }
}

/// @brief x with another floating-point element type; narrowing rounds to nearest, ties to even. Its gradient
/// has the element of x.
template <class Element, Operand X>
[[nodiscard]] auto convert(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Convert<Element>{}, where, std::forward<X>(x));
}
/// @brief The same for a moved-in owner: returns it unchanged if it already has that element type.
template <class Element, LayoutType L, class Target>
[[nodiscard]] ShardedTensor<L, Element, Target> convert(ShardedTensor<L, Element, Target>&& input) {
  return std::move(input);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
