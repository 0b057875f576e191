// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts of reductions over one dimension or over all of them.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Axis, PropagationFault fault> struct ReductionOver {
  static_assert(fault != PropagationFault::partial_not_linear,
                "reduce: of Partial inputs only a Sum or Avg may be summed (redistribute the input first)");
  static_assert(fault != PropagationFault::partial,
                "reduce: the input must not be a Partial of another operation (redistribute it first)");
};

template <bool fit> struct ReductionRanks {
  static_assert(fit, "reduce: the dimension must be at least 0 and less than the tensor rank (count from 0)");
};

template <class Op, int dimension> struct ReductionRule {
  static constexpr bool takes_halos = true;
  template <class Axis, PropagationFault fault> using Over = ReductionOver<Axis, fault>;
  template <bool fit> using Ranks = ReductionRanks<fit>;
  static constexpr bool ranks_fit(int rank) { return dimension >= 0 && dimension < rank; }
  static constexpr PropagatedLayout apply(const LayoutValue& input) {
    return reduction_layout(input, dimension, dimension + 1, Op::value);
  }
};
/// The rule of a reduction over all dimensions at once.
template <class Op> struct ReduceAllRule : ReductionRule<Op, 0> {
  static constexpr bool ranks_fit(int) { return true; }
  static constexpr PropagatedLayout apply(const LayoutValue& input) {
    return reduction_layout(input, 0, input.tensor_rank, Op::value);
  }
};

} // namespace detail

/// @brief Layout after reducing away one dimension with `Op`: its axes become Partial<Op>, and later
/// dimensions move up.
template <Reduction Op, int dimension, LayoutType Input>
using ReductionLayout = typename detail::Propagated<detail::ReductionRule<Op, dimension>, Input>::type;

/// @brief Layout after reducing all dimensions to one number (tensor rank 0). Halos are ignored.
template <Reduction Op, LayoutType Input>
using ReduceAllLayout = typename detail::Propagated<detail::ReduceAllRule<Op>, Input>::type;

namespace detail {

template <LayoutType Input, int dimensions> struct LeadingSumOf { using type = Input; };
template <LayoutType Input, int dimensions>
requires(dimensions > 0) struct LeadingSumOf<Input, dimensions> {
  using type = typename LeadingSumOf<ReductionLayout<Sum, 0, Input>, dimensions - 1>::type;
};

} // namespace detail

/// @brief Layout after summing away the first `dimensions` dimensions: the layout of the gradient of an
/// operand that lacks them, such as a bias, given that of the result's gradient.
template <LayoutType Input, int dimensions>
using LeadingSumLayout = typename detail::LeadingSumOf<Input, dimensions>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
