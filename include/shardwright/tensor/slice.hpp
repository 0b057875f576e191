// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Parts of a tensor along a dimension that is not sharded, and tensors joined along one.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/add_slice.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/insert_columns.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether every rank has all of a dimension; the trace shows the layout and the dimension.
template <LayoutType L, int dimension> struct WholeDimension {
  static constexpr bool exists = (dimension >= 0 && dimension < L::tensor_rank) || any_invalid<L>;
  static_assert(exists, "slice, concat: the tensor must have the dimension (count dimensions from 0)");
  static constexpr bool whole = [] {
    if constexpr (exists && !any_invalid<L>)
      return L::value.shard(dimension).empty() && !has_halos<L>;
    return true;
  }();
  static_assert(
      whole,
      "slice, concat: the dimension must not be sharded, and there must be no halos, since each rank has other indices of it (redistribute the tensor, so that another dimension is sharded)");
  static constexpr bool value = exists && whole && !any_invalid<L>;
};

template <class X, class Y> struct OneLayoutOf {
  static constexpr bool value = std::is_same_v<typename X::layout, typename Y::layout> ||
                                any_invalid<typename X::layout, typename Y::layout>;
  static_assert(value, "concat: both tensors must have one layout (redistribute one of them)");
};

} // namespace detail

namespace operation {

/// @brief Some indices of a dimension, with the gradient: zero at the others. Linear.
template <int dimension> struct SliceAlong {
  static constexpr std::string_view name = "slice";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  std::int64_t begin;
  std::int64_t count;

  [[nodiscard]] std::array<GivenNumber, 2> numbers() const {
    return {GivenNumber("first index", begin), GivenNumber("number of indices", count)};
  }
  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = ElementwiseLinearLayout<typename X::layout>;
    using Result = detail::ResultTensor<L, X>;
    if constexpr (!detail::WholeDimension<L, dimension>::value) {
      return Result(x.resources(), {}, where);
    } else {
      constexpr auto d = static_cast<std::size_t>(dimension);
      auto shape = x.shape();
      if (begin < 0 || count < 0 || begin > shape[d] || count > shape[d] - begin)
        detail::reject_operation("slice",
                                 "the indices must be within the extent of dimension " + std::to_string(d) +
                                     ", " + std::to_string(shape[d]) + ", but they are " +
                                     std::to_string(count) + " from " + std::to_string(begin) +
                                     " on (count indices from 0)",
                                 x.core(), where);
      shape[d] = count;
      Result out(x.resources(), shape, where);
      if (out.local_size() > 0)
        kernels::inserted_columns(out.execution(), detail::matrix_at(x, d), detail::mutable_matrix_at(out, d),
                                  static_cast<std::size_t>(begin) * detail::elements_after(x, d), 1);
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X& x, const Y&) const {
    detail::ResultTensor<typename G::layout, G> out(y_gradient.resources(), x.shape());
    fill_zero(out);
    detail::add_to_slice(out, y_gradient, dimension, begin, 1);
    return out;
  }
};

/// @brief The indices of one tensor and then those of another, with the gradients, which are parts of the
/// result's. Linear in both together.
template <int dimension> struct ConcatAlong {
  static constexpr std::string_view name = "concat";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};

  template <AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto forward(SourceLocation where, const X& x, const Y& y) const {
    using L = ElementwiseLinearLayout<typename X::layout>;
    using Result = detail::ResultTensor<L, X>;
    if constexpr (!detail::OneLayoutOf<X, Y>::value || !detail::SameElementAndTarget<X, Y>::value ||
                  !detail::WholeDimension<L, dimension>::value || detail::any_invalid<typename Y::layout>) {
      return Result(x.resources(), {}, where);
    } else {
      constexpr auto d = static_cast<std::size_t>(dimension);
      detail::require_one_mesh("concat", x, y, where);
      auto wanted = x.shape();
      wanted[d] = y.shape()[d];
      detail::require_shape("concat", "second tensor", y.shape(), wanted, x.core(), where);
      auto shape = x.shape();
      shape[d] += y.shape()[d];
      Result out(x.resources(), shape, where);
      if (out.local_size() > 0)
        kernels::insert_columns(out.execution(), detail::matrix_at(x, d), detail::matrix_at(y, d),
                                detail::mutable_matrix_at(out, d), detail::matrix_at(x, d).extent(1), 1);
      return out;
    }
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto left_gradient(const G& y_gradient, const X& x, const Y&) const {
    return SliceAlong<dimension>{0, x.shape()[static_cast<std::size_t>(dimension)]}.forward({}, y_gradient);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto right_gradient(const G& y_gradient, const X& x, const Y& y) const {
    constexpr auto d = static_cast<std::size_t>(dimension);
    return SliceAlong<dimension>{x.shape()[d], y.shape()[d]}.forward({}, y_gradient);
  }
};

} // namespace operation

/// @brief The indices [begin, begin + count) of a dimension that is not sharded; x may be a sum that is not
/// complete. No communication. Cost: one pass over the part, and for the gradient one over x.
/// @throws InvalidArgument for an index beyond the extent.
template <int dimension, Operand X>
[[nodiscard]] auto slice(X&& x, std::int64_t begin, std::int64_t count,
                         SourceLocation where = SourceLocation::current()) {
  return apply(operation::SliceAlong<dimension>{begin, count}, where, std::forward<X>(x));
}

/// @brief x and then y along a dimension that is not sharded. Both have one layout, and may be sums that are
/// not complete. No communication. Cost: one pass over both each way.
/// @throws InvalidArgument if other extents differ.
template <int dimension, Operand X, Operand Y>
[[nodiscard]] auto concat(X&& x, Y&& y, SourceLocation where = SourceLocation::current()) {
  return apply(operation::ConcatAlong<dimension>{}, where, std::forward<X>(x), std::forward<Y>(y));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
