// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reductions over one dimension or all: local reductions whose results are Partial where the input
/// was sharded. Sums and means have gradients.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/halo/exchange.hpp>
#include <shardwright/tensor/kernels/reduce_dimensions.hpp>
#include <shardwright/tensor/kernels/repeat.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/ordered_sum.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Op, class Input, class Result>
void reduce_all_blocks(const Input& input, Result& out, double factor) {
  using Element = typename Input::value_type;
  using Part = RealPart<Element>;
  using Accumulator = AccumulatorOf<Part>;
  constexpr std::size_t parts = parts_in<Element>;
  const std::size_t count = input.local_size();
  const std::size_t blocks = count == 0 ? 1 : (count + reduction_block - 1) / reduction_block;
  auto& resources = input.resources();
  const BufferHandle partial(resources.take(blocks * parts * sizeof(Accumulator)));
  auto* const sums = static_cast<Accumulator*>(partial.data());
  kernels::moves("sw::reduce", resources.execution(), (count + 1) * sizeof(Element));
  kernels::run("sw::reduce", resources.execution(), blocks * parts,
               ReduceBlocks<Op::value, parts, Part, Accumulator>{as_parts(input.data()), sums, count,
                                                                 reduction_block});
  kernels::run("sw::reduce", resources.execution(), parts,
               ReduceBlocks<Op::value, parts, Accumulator, Part>{sums, as_parts(out.mutable_data()), blocks,
                                                                 blocks, factor});
}

template <class Op> struct NoAverage {
  static constexpr bool value = !std::is_same_v<Op, Avg>;
  static_assert(
      value,
      "reduce: an average must be a Sum that is scaled once (take mean, or reduce with Sum and scale by 1 / extent)");
};

/// Means of integers need not be integers.
template <class X> struct RealMean {
  static constexpr bool value = FieldElement<typename std::remove_cvref_t<X>::element>;
  static_assert(
      value,
      "mean: the elements must be floating-point, because a mean of integers need not be an integer (take the sum, and divide it as a floating-point number)");
};

/// Names the operand.
template <class X, class Op> struct ReducedElement {
  static constexpr bool value = !ComplexElement<typename X::value_type> || std::is_same_v<Op, Sum>;
  static_assert(
      value,
      "reduce: complex elements must be summed, because they have no order, and products of them are not reduced (use Sum)");
};

/// One ordered sum has 576 bytes.
template <class Op> struct OrderedOfAll {
  static constexpr bool value = !is_ordered<Op>;
  static_assert(
      value,
      "reduce: an OrderedSum must be of all dimensions (use reduce_all, or Sum for the rows of a matrix)");
};

template <class Op> inline constexpr bool is_extreme = std::is_same_v<Op, Max> || std::is_same_v<Op, Min>;

/// Only values of a tape have gradients; tensors do not.
template <class Op, class X, class L> struct ReductionWithGradient {
  static constexpr bool of_one_rank = is_extreme<Op> && !L::value.has_partial();
  static constexpr bool value = AnyShardedTensor<X> || std::is_same_v<Op, Sum> || of_one_rank;
  static_assert(
      value,
      "reduce: there is no gradient of a Product, nor of Max or Min over ranks (redistribute the value, so that the reduced dimensions are not sharded, or reduce the tensor value(), which is not on the tape)");
};

/// The layout of an operand, also of one on a tape.
template <class X> struct OperandLayout { using type = typename X::layout; };
template <class X>
requires requires { typename X::compute_layout; }
struct OperandLayout<X> {
  using type = typename X::compute_layout;
};

/// dx[outer, middle, inner]: dy where x first has its greatest or least element, else 0.
template <ReduceOp op, class Element> struct SelectExtreme {
  const Element* x;
  const Element* dy; // [outer, inner]
  Element* dx;
  std::size_t middle;
  std::size_t inner;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const std::size_t first = i / inner * middle * inner + i % inner;
    std::size_t best = 0;
    for (std::size_t m = 0; m < middle; ++m) {
      const Element now = x[first + m * inner], before = x[first + best * inner];
      if (op == ReduceOp::maximum ? now > before : now < before)
        best = m;
      dx[first + m * inner] = Element(0);
    }
    if (middle > 0)
      dx[first + best * inner] = dy[i];
  }
};

/// Stands for all dimensions where a dimension is expected.
inline constexpr int all_dimensions = std::numeric_limits<int>::min();

template <class Op, int dimension, class L> struct ReducedLayoutOf {
  using type = ReductionLayout<Op, dimension, L>;
};
template <class Op, class L> struct ReducedLayoutOf<Op, all_dimensions, L> {
  using type = ReduceAllLayout<Op, L>;
};

template <class Op, int dimension, class X>
using ReductionIsAllowed = ReductionWithGradient<
    Op, X,
    typename ReducedLayoutOf<Op, dimension, typename OperandLayout<std::remove_cvref_t<X>>::type>::type>;

/// The gradient of a sum: a number of the result's gradient for each element that was summed, times the
/// factor.
template <class X, class G>
[[nodiscard]] auto repeated(const G& y_gradient, const X& x, std::size_t middle, std::size_t inner,
                            double factor) {
  ShardedTensor<Gradient<typename X::layout>, typename G::value_type, typename G::target> out(
      y_gradient.resources(), x.shape());
  kernels::repeat(out.execution(), factor, part_vector_of(y_gradient), middle,
                  inner * parts_in<typename G::value_type>, mutable_part_vector_of(out));
  return out;
}

} // namespace detail

namespace operation {

/// @brief A reduction over one dimension or over all, or the mean, with the gradient of a sum, the result's
/// repeated, or of Max and Min: the result's, at the first of the greatest or least elements.
template <class Op, int dimension> struct Reduce {
  static constexpr bool all = dimension == detail::all_dimensions;
  static constexpr std::string_view name = all ? "reduce_all" : "reduce";
  static constexpr bool gradient_reads_input = detail::is_extreme<Op>;
  static constexpr bool gradient_reads_output = false;
  bool mean = false; ///< Times 1 / the number of elements that are summed.

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = typename detail::ReducedLayoutOf<Op, dimension, typename X::layout>::type;
    using Result = detail::ResultTensor<L, X>;
    if constexpr (!detail::is_extreme<Op> && !std::is_integral_v<typename Result::value_type>)
      static_cast<void>(detail::SumOfRanks<L, typename X::target>::value);
    if constexpr (detail::any_invalid<L> || !detail::ReducedElement<X, Op>::value) {
      return Result(x.resources(), {}, where);
    } else if constexpr (detail::has_halos<typename X::layout>) {
      return forward(where, detail::without_halos(x));
    } else {
      typename Result::Shape shape{};
      for (std::size_t d = 0; d < shape.size(); ++d)
        shape[d] = x.shape()[d < static_cast<std::size_t>(dimension) ? d : d + 1];
      Result out(x.resources(), shape, where);
      if constexpr (all) {
        detail::reduce_all_blocks<Op>(x, out, factor_of(x));
      } else {
        const auto [middle, inner] = extents(x);
        using Kernel = detail::ReduceDimension<Op::value, RealPart<typename X::value_type>>;
        kernels::moves("sw::reduce", x.execution(),
                       x.local_size() * sizeof(typename X::value_type) +
                           out.local_size() * sizeof(typename Result::value_type));
        constexpr std::size_t parts = detail::parts_in<typename X::value_type>;
        kernels::run("sw::reduce", x.execution(), out.local_size() * parts,
                     Kernel{detail::as_parts(x.data()), detail::as_parts(out.mutable_data()), middle,
                            inner * parts, factor_of(x)});
      }
      detail::TensorAccess::note_reduction(out, x);
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X& x, const Y&) const {
    const auto [middle, inner] = extents(x);
    if constexpr (detail::is_extreme<Op>) {
      using Element = typename G::value_type;
      ShardedTensor<Gradient<typename X::layout>, Element, typename G::target> out(y_gradient.resources(),
                                                                                   x.shape());
      kernels::run("sw::d_extreme", out.execution(), y_gradient.local_size(),
                   detail::SelectExtreme<Op::value, Element>{x.data(), y_gradient.data(), out.mutable_data(),
                                                             middle, inner});
      return out;
    } else {
      return detail::repeated(y_gradient, x, middle, inner, factor_of(x));
    }
  }

private:
  struct Extents {
    std::size_t middle;
    std::size_t inner;
  };
  template <class X> [[nodiscard]] static Extents extents(const X& x) {
    if constexpr (all)
      return {x.local_size(), 1};
    else
      return {static_cast<std::size_t>(x.local_shape()[static_cast<std::size_t>(dimension)]),
              detail::product(x.local_shape(), static_cast<std::size_t>(dimension + 1))};
  }
  template <class X> [[nodiscard]] double factor_of(const X& x) const {
    if constexpr (all)
      return mean ? 1 / static_cast<double>(x.size()) : 1;
    else
      return mean ? 1 / static_cast<double>(x.shape()[static_cast<std::size_t>(dimension)]) : 1;
  }
};

} // namespace operation

namespace detail {

/// The exact sum of all elements.
template <class X> [[nodiscard]] auto ordered_sum_of(const X& x, SourceLocation where) {
  if constexpr (!OrderedOperand<X>::value) {
    return apply(operation::Reduce<Sum, all_dimensions>{}, where, x);
  } else {
    using L = ReduceAllLayout<OrderedSum, typename X::layout>;
    if constexpr (any_invalid<L>) {
      return ShardedTensor<L, ExactSum, typename X::target>(x.resources(), {}, where);
    } else {
      static_assert(RealElement<typename X::value_type>,
                    "OrderedSum: the elements must be floating-point (use Sum, which is exact for integers)");
      begin_operation(where, x);
      const auto& owned = without_halos(x);
      return ordered_sum<L, kernels::ElementTerms>(owned, owned, where);
    }
  }
}

} // namespace detail

/// @brief Reduces away one dimension with `Op`: if it is sharded, the result is Partial<Op> over those axes.
///
/// No communication; redistribute completes the result. Halos are ignored. Sums of float run in double, in a
/// fixed order; those of complex elements are of their parts. An empty block gives the operation's neutral
/// element. On a tape, Sum has a gradient, and so have Max and Min over a dimension that is not sharded: that
/// of the first of equal elements.
/// @tparam Op Sum, Product, Max or Min
template <Reduction Op, int dimension, Operand X>
[[nodiscard]] auto reduce(X&& x, SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::NoAverage<Op>::value && detail::OrderedOfAll<Op>::value &&
                detail::ReductionIsAllowed<Op, dimension, X>::value)
    return apply(operation::Reduce<Op, dimension>{}, where, std::forward<X>(x));
  else
    return apply(operation::Reduce<Sum, dimension>{}, where, std::forward<X>(x));
}

/// @brief Reduces all dimensions to one number, a tensor of rank 0.
///
/// No communication; Partial<Op> over the axes that shard the input. Halos are ignored. Blocks of 4096
/// elements are summed in order, and then their sums, in double precision for floating-point elements. On a
/// tape, Sum has a gradient, and so have Max and Min of a tensor that is not sharded: theirs is computed by
/// one thread, also on a device.
///
/// OrderedSum adds real elements in host memory exactly: an ExactSum, whose bits depend neither on the mesh
/// nor on the order. redistribute<Layout<0>> completes it, and item(...).value() rounds it.
template <Reduction Op, Operand X>
[[nodiscard]] auto reduce_all(X&& x, SourceLocation where = SourceLocation::current()) {
  if constexpr (detail::is_ordered<Op>)
    return detail::ordered_sum_of(x, where);
  else if constexpr (detail::NoAverage<Op>::value &&
                     detail::ReductionIsAllowed<Op, detail::all_dimensions, X>::value)
    return apply(operation::Reduce<Op, detail::all_dimensions>{}, where, std::forward<X>(x));
  else
    return apply(operation::Reduce<Sum, detail::all_dimensions>{}, where, std::forward<X>(x));
}

/// @brief reduce with Sum; without a dimension, reduce_all.
template <int dimension, Operand X>
[[nodiscard]] auto sum(X&& x, SourceLocation where = SourceLocation::current()) {
  return reduce<Sum, dimension>(std::forward<X>(x), where);
}
template <Operand X> [[nodiscard]] auto sum(X&& x, SourceLocation where = SourceLocation::current()) {
  return reduce_all<Sum>(std::forward<X>(x), where);
}

/// @brief The mean over one dimension, or over all: a sum that is divided once by the global extent, so
/// Partial<Sum>, not Avg, over the axes that shard the summed dimensions. Real elements.
template <int dimension, Operand X>
[[nodiscard]] auto mean(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Reduce<Sum, dimension>{.mean = detail::RealMean<X>::value}, where,
               std::forward<X>(x));
}
template <Operand X> [[nodiscard]] auto mean(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Reduce<Sum, detail::all_dimensions>{.mean = detail::RealMean<X>::value}, where,
               std::forward<X>(x));
}

/// @brief The number in a tensor of rank 0, the same on every rank; waits for the kernels that compute it. In
/// a dry run, 1.
/// @throws LifecycleError if the tensor was moved from.
template <AnyShardedTensor Tensor>
[[nodiscard]] typename Tensor::value_type item(const Tensor& tensor,
                                               SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  static_assert(Tensor::tensor_rank == 0, "item: the tensor must have rank 0 (reduce it first)");
  static_assert(!Tensor::layout::value.has_partial(),
                "item: the tensor must not be Partial, an incomplete sum (redistribute it first)");
  static_assert(Tensor::target::host_accessible, "item: the tensor must be in host memory (copy it first)");
  if constexpr (counts_only<typename Tensor::target>) {
    return typename Tensor::value_type(1);
  } else {
    detail::wait_for_kernels(tensor.execution());
    return *tensor.data();
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
