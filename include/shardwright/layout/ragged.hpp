// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ragged: the layout of rows grouped by expert, whose counts are known only at run time, and the
/// layouts of dispatch, grouped product and combine.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/detail/propagated.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/matmul_layout.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

template <class Tokens, class Owners, class Columns> struct Ragged;

namespace detail {

template <class Tokens, class Owners, class Columns>
inline constexpr bool is_layout<Ragged<Tokens, Owners, Columns>> = true;
template <class Tokens, class Owners, class Columns>
inline constexpr bool is_ragged<Ragged<Tokens, Owners, Columns>> = true;

template <class Columns, class Tokens, class Owners> struct WithColumns {
  using type = Ragged<Tokens, Owners, Columns>;
};
template <class Tokens, class Owners> struct WithColumns<InvalidLayout, Tokens, Owners> {
  using type = InvalidLayout;
};

template <class Tokens, class Columns> constexpr LayoutValue ragged_value() {
  using table = UnionOfAxes<typename Tokens::axis_list, typename Columns::axis_list>;
  const LayoutValue tokens = value_over<table, Tokens>();
  LayoutValue out = value_over<table, Columns>();
  out.tensor_rank = 2;
  out.shard(1) = out.shard(0);
  out.shard(0) = {};
  for (int d = 0; d < tokens.tensor_rank; ++d)
    for (const int axis : tokens.shard(d))
      out.shard(0).push_back(axis);
  return out;
}

} // namespace detail

/// @brief Rows grouped by expert, [rows, columns]: the tokens of layout `Tokens` that chose an expert of this
/// rank, grouped by expert, in the order of the ranks and of their tokens.
///
/// The experts are split over the axes of the AxisList `Owners`, major to minor, as in the `Shard<0, ...>` of
/// their weights; every one of these axes splits the tokens. How many rows a rank has is known only at run
/// time, so only special operations accept them: dispatch() creates them, grouped() multiplies them,
/// elementwise functions and elementwise products of two such tensors keep them, combine() returns them to
/// their tokens. `Columns`, a Layout<1>, says how a row is distributed: sharded, or Partial, over axes that
/// replicate tokens.
template <class Tokens, class Owners, class Columns = Layout<1>> struct Ragged {
  using tokens = Tokens;
  using owners = Owners;
  using columns = Columns;
  template <class Other> using with_columns = typename detail::WithColumns<Other, Tokens, Owners>::type;

  static constexpr int tensor_rank = 2;
  using axis_list = UnionOfAxes<typename Tokens::axis_list, typename Columns::axis_list>;
  static constexpr auto axes = axis_list::names;
  static constexpr LayoutValue value = detail::ragged_value<Tokens, Columns>();

  template <Axis A> static constexpr int index_of = axis_index(axes, A::name);
  template <Axis A>
  static constexpr int shard_dimension = index_of<A> < 0 ? -1 : value.dimension_of(index_of<A>);
  template <Axis A>
  static constexpr bool is_partial = index_of<A> >= 0 && value.is_partial(index_of<A> < 0 ? 0 : index_of<A>);
};

namespace detail {

/// Rows of gradients are on the same ranks as those of values.
template <class Tokens, class Owners, class Columns> struct GradientOf<Ragged<Tokens, Owners, Columns>> {
  using type =
      typename Ragged<Tokens, Owners, Columns>::template with_columns<typename GradientOf<Columns>::type>;
};

template <class Described> struct DispatchedTokens {
  static constexpr bool rows =
      Described::tensor_rank >= 2 && !Described::value.has_partial() && !has_halos<Described> &&
      !is_ragged<Described> &&
      Described::value.shard(Described::tensor_rank < 1 ? 0 : Described::tensor_rank - 1).empty();
  static constexpr bool value = rows && !any_invalid<Described>;
  static_assert(
      rows || any_invalid<Described>,
      "dispatch: the tokens must be whole rows, neither Partial nor sharded in their last dimension, nor already dispatched (read them in a layout that shards tokens only)");
};

template <class Owner, class Described, bool splits> struct OwnerSplitsTokens {
  static_assert(
      splits,
      "dispatch: every axis that owns experts must split the tokens, as ranks with the same tokens would send each of them twice (read the tokens in a layout that shards them over it, too)");
};
template <class Described, class Owners> struct OwnersSplitTokens;
template <class Described, class... Owners> struct OwnersSplitTokens<Described, AxisList<Owners...>> {
  template <class Owner> static constexpr bool splits = Described::template shard_dimension<Owner> >= 0;
  static constexpr bool value = (true && ... && splits<Owners>);
  static_assert((true && ... && (sizeof(OwnerSplitsTokens<Owners, Described, splits<Owners>>) != 0)));
};

template <bool fits, class Tokens, class Owners> struct DispatchOf { using type = InvalidLayout; };
template <class Tokens, class Owners> struct DispatchOf<true, Tokens, Owners> {
  static_assert(sizeof(OwnersSplitTokens<Tokens, Owners>) != 0);
  using type =
      std::conditional_t<OwnersSplitTokens<Tokens, Owners>::value, Ragged<Tokens, Owners>, InvalidLayout>;
};

/// The axes that shard dimension 0 of a layout, by name and in order.
template <class Described, class... Owners> constexpr bool owned_by(AxisList<Owners...>) {
  const AxisSequence& shard = Described::value.shard(0);
  int i = 0;
  return shard.count == int(sizeof...(Owners)) &&
         (true && ... && (Described::axes[static_cast<std::size_t>(shard[i++])] == Owners::name));
}
template <class Described> constexpr bool owned_by(AxisList<>) { return Described::value.shard(0).empty(); }

template <class Rows, class Weights> struct GroupedOperands {
  static constexpr bool reported = any_invalid<Rows, Weights>;
  static constexpr bool is_rows = reported || is_ragged<Rows>;
  static constexpr bool fits = [] {
    if constexpr (is_rows && !reported)
      return Weights::tensor_rank == 3 && !Weights::value.has_partial() && !is_ragged<Weights> &&
             owned_by<Weights>(typename Rows::owners{});
    else
      return true;
  }();
  static constexpr bool apart = [] {
    bool out = true;
    if constexpr (is_rows && !reported)
      for (const auto& axis : Rows::tokens::axes) {
        const int index = axis_index(Weights::axes, axis);
        out = out && (index < 0 || Weights::value.dimension_of(index) <= 0);
      }
    return out;
  }();
  static_assert(is_rows, "grouped: the left operand must be rows grouped by expert (dispatch the tokens)");
  static_assert(
      fits,
      "grouped: the weights must be [experts, in, out] and sharded in dimension 0 over the axes that own the experts of the rows, in their order (use Shard<0, owners...>, as in the dispatch)");
  static_assert(
      apart,
      "grouped: an axis that splits the tokens must not shard rows or columns of the weights (shard them over an axis that replicates the tokens)");
  static constexpr bool value = !reported && is_rows && fits && apart;
};

template <class Weights> struct ExpertMatrixHolder {
  static constexpr LayoutValue value = [] {
    LayoutValue out = Weights::value;
    out.tensor_rank = 2;
    out.shard(0) = out.shard(1);
    out.shard(1) = out.shard(2);
    out.shard(2) = {};
    return out;
  }();
};
/// The layout of one expert's matrix.
template <class Weights>
using ExpertMatrix = LayoutOf<typename Weights::axis_list, ExpertMatrixHolder<Weights>>;

template <bool fits, class Rows, class Weights, MatmulForm form> struct GroupedOf {
  using type = InvalidLayout;
};
template <class Rows, class Weights, MatmulForm form> struct GroupedOf<true, Rows, Weights, form> {
  using type =
      typename Rows::template with_columns<MatmulLayout<typename Rows::columns, ExpertMatrix<Weights>, form>>;
};

template <class Rows, class Matrix> struct GroupedWeightHolder {
  using owners = typename SortAxes<typename Rows::owners>::type;
  using table =
      UnionOfAxes<UnionOfAxes<typename Rows::tokens::axis_list, owners>, typename Matrix::axis_list>;
  template <class... Owners> static constexpr LayoutValue over(AxisList<Owners...>) {
    LayoutValue out = value_over<table, Matrix>();
    out.tensor_rank = 3;
    out.shard(2) = out.shard(1);
    out.shard(1) = out.shard(0);
    out.shard(0) = {};
    (out.shard(0).push_back(axis_index(table::names, Owners::name)), ...);
    for (const auto& axis : Rows::tokens::axes)
      if (const int index = axis_index(table::names, axis); !out.shard(0).contains(index))
        out.set_partial(index, ReduceOp::sum);
    return out;
  }
  static constexpr LayoutValue value = over(typename Rows::owners{});
};
template <class Rows, class Matrix> struct GroupedWeightOf {
  using type = LayoutOf<typename GroupedWeightHolder<Rows, Matrix>::table, GroupedWeightHolder<Rows, Matrix>>;
};
template <class Rows> struct GroupedWeightOf<Rows, InvalidLayout> { using type = InvalidLayout; };

template <class Rows, bool of_gates> struct CombinedHolder {
  using table = typename Rows::axis_list;
  static constexpr LayoutValue value = [] {
    LayoutValue out = value_over<table, typename Rows::tokens>();
    const LayoutValue columns = value_over<table, typename Rows::columns>();
    for (int axis = 0; axis < max_axes; ++axis)
      if (columns.is_partial(axis))
        out.set_partial(axis, columns.op(axis));
      else if (of_gates && columns.shard(0).contains(axis))
        out.set_partial(axis, ReduceOp::sum);
    if (!of_gates)
      out.shard(out.tensor_rank - 1) = columns.shard(0);
    return out;
  }();
};

template <class Rows, class Gates> struct CombineOperands {
  static constexpr bool reported = any_invalid<Rows, Gates>;
  static constexpr bool is_rows = reported || is_ragged<Rows>;
  static constexpr bool fits = [] {
    if constexpr (is_rows && !reported)
      return std::is_same_v<typename Rows::tokens, Gates>;
    else
      return true;
  }();
  static_assert(is_rows, "combine: the left operand must be rows grouped by expert (dispatch the tokens)");
  static_assert(
      fits,
      "combine: the gates must have the layout in which the tokens were dispatched (redistribute them, or compute them from the tokens in that layout)");
  static constexpr bool value = !reported && is_rows && fits;
};

template <bool fits, class Rows, bool of_gates> struct CombinedOf { using type = InvalidLayout; };
template <class Rows, bool of_gates> struct CombinedOf<true, Rows, of_gates> {
  using type = LayoutOf<typename Rows::axis_list, CombinedHolder<Rows, of_gates>>;
};

} // namespace detail

/// @brief Layout of tokens [tokens..., width] after their dispatch to experts, which the axes of the AxisList
/// `Owners` own.
template <LayoutType Tokens, class Owners>
using DispatchLayout =
    typename detail::DispatchOf<detail::DispatchedTokens<Tokens>::value, Tokens, Owners>::type;

/// @brief Layout of the product of each expert's rows with its matrix of `Weights`, [experts, in, out]:
/// columns as those of a matmul with that matrix.
template <LayoutType Rows, LayoutType Weights>
using GroupedLayout = typename detail::GroupedOf<detail::GroupedOperands<Rows, Weights>::value, Rows, Weights,
                                                 MatmulForm::plain>::type;

/// @brief Layout of the gradient of a grouped product's rows, given that of its result.
template <LayoutType OutputGradient, LayoutType Weights>
using GroupedInputGradientLayout =
    typename detail::GroupedOf<detail::GroupedOperands<OutputGradient, Weights>::value, OutputGradient,
                               Weights, MatmulForm::right_transposed>::type;

/// @brief Layout of the gradient of a grouped product's weights: sharded over the experts' owners, and
/// Partial<Sum> over the other axes that split the tokens, as each rank there saw different tokens.
template <LayoutType Rows, LayoutType OutputGradient>
using GroupedWeightGradientLayout =
    typename detail::GroupedWeightOf<Rows,
                                     MatmulLayout<typename Rows::columns, typename OutputGradient::columns,
                                                  MatmulForm::left_transposed>>::type;

/// @brief Layout of tokens after combine(): as they were dispatched, with the columns of the rows.
template <LayoutType Rows, LayoutType Gates>
using CombineLayout =
    typename detail::CombinedOf<detail::CombineOperands<Rows, Gates>::value, Rows, false>::type;

/// @brief Layout of the gradient of combine()'s gates: Partial<Sum> over axes over which columns are sharded
/// or Partial.
template <LayoutType Rows, LayoutType Gates>
using GateGradientLayout =
    typename detail::CombinedOf<detail::CombineOperands<Rows, Gates>::value, Rows, true>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
