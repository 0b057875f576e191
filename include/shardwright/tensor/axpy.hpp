// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Updates of a vector in place: y = a x + y and y = a x + b y.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/halo/exchange.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Two tensors of the same layout, which must allow Partial sums, but not those of a Reproducible target.
template <class X, class Y> struct AxpyOperands {
  static constexpr bool same =
      std::is_same_v<WithoutHalos<typename X::layout>, WithoutHalos<typename Y::layout>>;
  static_assert(same, "axpy: both tensors must have the same layout (redistribute x)");
  static_assert(
      FieldElement<typename Y::value_type>,
      "axpy: the elements must be floating-point, because the factor would be rounded to an integer (write y = a * x + y with a whole number)");
  static_assert(!Y::read_only, "axpy: y must own its memory (give a tensor, not a read-only handle)");
  static constexpr bool value = same && FieldElement<typename Y::value_type> && !Y::read_only &&
                                WholeRows<typename Y::layout>::value && SameElementAndTarget<X, Y>::value &&
                                RoundedOnce<Y>::value &&
                                !any_invalid<ElementwiseLinearLayout<typename Y::layout>>;
};

/// y = a x + b y.
template <class Element> struct AxpbyElements {
  AccumulationElement<Element> a;
  const Element* x;
  AccumulationElement<Element> b;
  Element* y;
  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    const auto left = chunk.load(x + i); // loads come first, as in axpy
    const auto right = chunk.load(y + i);
    chunk.store(y + i, a * left + b * right);
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(x, y); }
};

/// The same for boxes with different strides, one row per index.
template <class Element> struct AxpbyRows {
  AccumulationElement<Element> a;
  const Element* x;
  ElementBox x_box;
  AccumulationElement<Element> b;
  Element* y;
  ElementBox y_box;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Element* const from = x + x_box.slab(row / x_box.rows) + row % x_box.rows * x_box.row_stride;
    Element* const to = y + y_box.slab(row / y_box.rows) + row % y_box.rows * y_box.row_stride;
    for (std::size_t c = 0; c < y_box.columns; ++c)
      to[c] = static_cast<Element>(a * static_cast<AccumulationElement<Element>>(from[c]) +
                                   b * static_cast<AccumulationElement<Element>>(to[c]));
  }
};

template <class X, class Y>
void axpby_checked(const char* name, double a, const X& x, double b, Y& y, SourceLocation where) {
  using Element = RealPart<typename Y::value_type>; // the factors are real: parts are treated alike
  constexpr std::size_t parts = parts_in<typename Y::value_type>;
  begin_operation(where, x, y);
  require_one_mesh(name, x, y, where);
  require_shape(name, "tensor y", y.shape(), x.shape(), x.core(), where);
  agreed(y.core(), name, where, SplittingAxes<typename Y::layout>::names, GivenNumber("factor of x", a),
         GivenNumber("factor of y", b));
  if (y.local_size() == 0)
    return;
  const auto first = static_cast<AccumulationElement<Element>>(a);
  const auto second = static_cast<AccumulationElement<Element>>(b);
  if constexpr (!std::is_same_v<typename X::layout, typename Y::layout>) {
    static_assert(parts == 1, "axpy: complex tensors must have equal halos (redistribute x)");
    const ElementBox box = owned_box(y);
    kernels::moves("sw::axpby", y.execution(),
                   box.count() * (sizeof(typename X::value_type) + 2 * sizeof(Element)));
    kernels::run(
        "sw::axpby", y.execution(), box.slabs() * box.rows,
        AxpbyRows<Element>{first, as_parts(x.data()), owned_box(x), second, as_parts(y.mutable_data()), box});
  } else if (b == 1) {
    kernels::axpy(y.execution(), a, part_vector_of(x), mutable_part_vector_of(y));
  } else {
    kernels::moves("sw::axpby", y.execution(), vector_of(x), vector_of(y), vector_of(y));
    kernels::run_elementwise<Element>(
        "sw::axpby", y.execution(), y.local_size() * parts,
        AxpbyElements<Element>{first, as_parts(x.data()), second, as_parts(y.mutable_data())});
  }
}

} // namespace detail

/// @brief y = factor * x + y, in place and without other memory.
///
/// Linear: two Partial Sums of the same layout give a third, but not on a Reproducible target. No
/// communication. Real or complex elements. If the halos of the two layouts differ, only the owned elements
/// are updated; refresh_halos then updates the halos of y.
/// @throws InvalidArgument if the shapes differ or the tensors are on two meshes.
template <AnyShardedTensor X, AnyShardedTensor Y>
void axpy(double factor, const X& x, Y& y, SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::AxpyOperands<X, Y>::value)
    detail::axpby_checked("axpy", factor, x, 1, y, where);
}

/// @brief y = a * x + b * y, as axpy.
template <AnyShardedTensor X, AnyShardedTensor Y>
void axpby(double a, const X& x, double b, Y& y, SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::AxpyOperands<X, Y>::value)
    detail::axpby_checked("axpby", a, x, b, y, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
