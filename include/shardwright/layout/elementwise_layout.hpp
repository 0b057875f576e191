// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts of elementwise operations: linear, nonlinear, row by row, sums and products of two
/// operands.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>
#include <shardwright/layout/operation.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <bool fit> struct BroadcastRanks {
  static_assert(fit,
                "add, multiply: the right operand must not have more dimensions than the left (swap them)");
};

template <class Axis, PropagationFault fault> struct LinearOver {
  static_assert(fault != PropagationFault::partial_not_linear,
                "linear operation: a Partial input must be a Sum or Avg (redistribute it first)");
};

template <class Axis, PropagationFault fault> struct AddOver {
  static_assert(fault != PropagationFault::sharding_differs,
                "add: both operands must be sharded alike (redistribute one of them)");
  static_assert(fault != PropagationFault::halos_differ,
                "add: both operands must carry the same halos (redistribute one of them)");
  static_assert(fault != PropagationFault::axis_conflict,
                "add: an axis must not shard two dimensions of the result (redistribute one operand)");
  static_assert(
      fault != PropagationFault::partial_and_complete,
      "add: an incomplete sum (Partial) cannot be added to a complete value (redistribute the Partial first)");
  static_assert(fault != PropagationFault::partial_differs,
                "add: two Partials must have the same operation (redistribute them first)");
  static_assert(fault != PropagationFault::partial_not_linear,
                "add: a Partial operand must be a Sum or Avg (redistribute it first)");
};

template <class Axis, PropagationFault fault> struct MultiplyOver {
  static_assert(fault != PropagationFault::sharding_differs,
                "multiply: both operands must be sharded alike (redistribute one of them)");
  static_assert(fault != PropagationFault::halos_differ,
                "multiply: both operands must carry the same halos (redistribute one of them)");
  static_assert(fault != PropagationFault::axis_conflict,
                "multiply: an axis must not shard two dimensions of the result (redistribute one operand)");
  static_assert(fault != PropagationFault::partial_times_partial,
                "multiply: Partial times Partial is not defined (redistribute one operand first)");
  static_assert(
      fault != PropagationFault::partial_and_sharded,
      "multiply: an axis that is Partial in one operand must be replicated in the other (redistribute one of them)");
  static_assert(fault != PropagationFault::partial_not_linear,
                "multiply: a Partial operand must be a Sum or Avg (redistribute it first)");
};

/// The right operand of a division, which is not linear in it.
struct Divisor {
  static constexpr bool takes_halos = true;
  template <class Axis, PropagationFault fault> struct Over {
    static_assert(fault != PropagationFault::partial,
                  "divide: the divisor must not be Partial, an incomplete sum (redistribute it first)");
  };
};

/// A number that is added to a tensor.
struct NumberAdded {
  static constexpr bool takes_halos = true;
  static constexpr bool takes_ragged = true;
  template <class Axis, PropagationFault fault> struct Over {
    static_assert(
        fault != PropagationFault::partial,
        "add: a number must not be added to a Partial, an incomplete sum, because every rank's part would count it (redistribute the Partial first)");
  };
};

/// Integers that are divided by a number.
struct RoundedQuotient {
  static constexpr bool takes_halos = true;
  static constexpr bool takes_ragged = true;
  template <class Axis, PropagationFault fault> struct Over {
    static_assert(
        fault != PropagationFault::partial,
        "divide: integers must not be divided while they are Partial, an incomplete sum, because every rank would round its part (redistribute them first)");
  };
};

template <bool fit> struct AnyRanks {};

/// Compilers print this condition with the names of the function and the axis.
template <class Function, class Axis, bool complete> inline constexpr bool input_is_complete = complete;

/// An elementwise function: equal copies stay equal.
template <class Function> struct EachElement {
  static constexpr bool takes_halos = true;
  static constexpr bool takes_ragged = true;
  template <class Axis, PropagationFault fault> struct Over {
    static_assert(
        input_is_complete<Function, Axis, fault != PropagationFault::partial>,
        "elementwise function: the input must not be Partial, an incomplete sum (redistribute it first)");
  };
};

struct LinearRule {
  static constexpr bool takes_halos = true;
  static constexpr bool takes_ragged = true;
  template <class Axis, PropagationFault fault> using Over = LinearOver<Axis, fault>;
  template <bool fit> using Ranks = AnyRanks<fit>;
  static constexpr bool ranks_fit(int) { return true; }
  static constexpr PropagatedLayout apply(const LayoutValue& input) { return linear_layout(input); }
};

template <class Operation, bool rowwise> struct NonlinearRule {
  static constexpr bool takes_halos = detail::takes_halos<Operation>;
  static constexpr bool takes_ragged = detail::takes_ragged<Operation>;
  template <class Axis, PropagationFault fault> using Over = typename Operation::template Over<Axis, fault>;
  template <bool fit> using Ranks = AnyRanks<fit>;
  static constexpr bool ranks_fit(int) { return true; }
  static constexpr PropagatedLayout apply(const LayoutValue& input) {
    return rowwise ? rowwise_layout(input) : nonlinear_layout(input);
  }
};

/// Dimensions are matched from the last one; the right operand is repeated over leading dimensions that it
/// lacks.
struct BroadcastRule {
  static constexpr bool takes_halos = true;
  template <bool fit> using Ranks = BroadcastRanks<fit>;
  static constexpr bool ranks_fit(int left, int right) { return right <= left; }
  static constexpr DimensionMap map_from(int first) {
    DimensionMap map{};
    for (int d = 0; d < max_tensor_rank; ++d)
      map[static_cast<std::size_t>(d)] = first + d;
    return map;
  }
};

struct AddRule : BroadcastRule {
  template <class Axis, PropagationFault fault> using Over = AddOver<Axis, fault>;
  static constexpr PropagatedLayout apply(const LayoutValue& left, const LayoutValue& right) {
    return sum_layout(left, map_from(0), right, map_from(left.tensor_rank - right.tensor_rank),
                      left.tensor_rank);
  }
};

struct MultiplyRule : BroadcastRule {
  static constexpr bool takes_ragged = true;
  template <class Axis, PropagationFault fault> using Over = MultiplyOver<Axis, fault>;
  static constexpr PropagatedLayout apply(const LayoutValue& left, const LayoutValue& right) {
    return product_layout(left, map_from(0), right, map_from(left.tensor_rank - right.tensor_rank),
                          left.tensor_rank, 0);
  }
};

} // namespace detail

/// @brief Layout after a linear elementwise operation (scale, negate, dropout): unchanged; Partial<Sum>,
/// Partial<Avg> and halos pass through.
template <LayoutType Input>
using ElementwiseLinearLayout = typename detail::Propagated<detail::LinearRule, Input>::type;

/// @brief Layout after a nonlinear elementwise operation: unchanged; the input must not be Partial.
/// @tparam Operation a tag such as operation::softmax; the error sentence starts with its name.
template <class Operation, LayoutType Input>
using ElementwiseNonlinearLayout =
    typename detail::Propagated<detail::NonlinearRule<Operation, false>, Input>::type;

/// @brief The same for an elementwise function, which accepts halos: the copies stay equal to their
/// originals.
/// @tparam Function a type such as operation::Relu; the error shows its name.
template <class Function, LayoutType Input>
using ElementwiseFunctionLayout = ElementwiseNonlinearLayout<detail::EachElement<Function>, Input>;

/// @brief Layout after a nonlinear operation on whole rows (softmax, a norm): unchanged; the input must not
/// be Partial and its last dimension not sharded.
template <class Operation, LayoutType Input>
using RowwiseLayout = typename detail::Propagated<detail::NonlinearRule<Operation, true>, Input>::type;

/// @brief Layout of a sum of two operands; the right one may lack leading dimensions (a bias vector on the
/// last one).
///
/// P + P = P; Partial plus a complete value is an error; dimensions that both have must be sharded alike, and
/// the right operand must be replicated over the axes of the dimensions that it lacks. Equal halos pass.
template <LayoutType Left, LayoutType Right>
using AddLayout = typename detail::Propagated<detail::AddRule, Left, Right>::type;

/// @brief Layout of an elementwise product; operands as for AddLayout. Partial times replicated is Partial.
template <LayoutType Left, LayoutType Right>
using MultiplyLayout = typename detail::Propagated<detail::MultiplyRule, Left, Right>::type;

/// @brief Layout of an elementwise quotient: as a product with a right operand that must not be Partial.
template <LayoutType Left, LayoutType Right>
using DivideLayout = MultiplyLayout<Left, ElementwiseNonlinearLayout<detail::Divisor, Right>>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
