// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Turns a propagation rule over values into a layout type and one error sentence per axis.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/propagation.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Whether a rule handles halos.
template <class Rule> inline constexpr bool takes_halos = requires { requires Rule::takes_halos; };

/// Whether a rule is purely elementwise, wherever the rows are.
template <class Rule> inline constexpr bool takes_ragged = requires { requires Rule::takes_ragged; };

/// A rule has `ranks_fit(ranks...)`, `apply(values...)`, the sentence of wrong ranks `Ranks<fit>` and the
/// sentences of one axis `Over<Axis, fault>`; one that knows halos has `takes_halos`.
template <class Rule, class... Operands> struct Propagation {
  using table = typename SortAxes<typename JoinAxes<typename Operands::axis_list...>::type>::type;
  static constexpr bool reported = any_invalid<Operands...>;
  static constexpr bool few_axes = table::size <= max_axes;
  static constexpr bool ranks_fit = reported || Rule::ranks_fit(Operands::tensor_rank...);
  static constexpr bool halos_fit = reported || takes_halos<Rule> || (true && ... && !has_halos<Operands>);
  static constexpr PropagatedLayout result = [] {
    if constexpr (reported || !few_axes || !ranks_fit || !halos_fit)
      return PropagatedLayout{};
    else
      return Rule::apply(value_over<table, Operands>()...);
  }();
  static constexpr LayoutValue value = result.layout;
  static constexpr bool valid = !reported && few_axes && ranks_fit && halos_fit && result.valid();
};

template <class Rule, class Found, class Table, class Indices> struct PropagationAxisChecks;
template <class Rule, class Found, class... Axes, std::size_t... indices>
struct PropagationAxisChecks<Rule, Found, AxisList<Axes...>, std::index_sequence<indices...>>
    : Rule::template Over<Axes, (indices < max_axes ? Found::result.faults[indices % max_axes]
                                                    : PropagationFault::none)>... {};

template <class Rule, class Found>
struct PropagationChecks : Rule::template Ranks<Found::ranks_fit>,
                           PropagationAxisChecks<Rule, Found, typename Found::table,
                                                 std::make_index_sequence<Found::table::size>> {
  static_assert(Found::few_axes,
                "Layout: the operands may name at most 8 axes together (flatten some of them)");
  static_assert(
      Found::halos_fit,
      "Halo: this operation has no meaning on copies of the neighbours' elements (redistribute its operands to WithoutHalos of their layouts)");
};

template <class Found, bool valid> struct LayoutOrInvalid { using type = InvalidLayout; };
template <class Found> struct LayoutOrInvalid<Found, true> {
  using type = LayoutOf<typename Found::table, Found>;
};

template <class Rule, class... Operands> struct Propagated {
  // Not a base: clang makes a class with a failed base invalid, and prints an error for every later use of
  // it.
  static_assert(sizeof(PropagationChecks<Rule, Propagation<Rule, Operands...>>) != 0);
  using type =
      typename LayoutOrInvalid<Propagation<Rule, Operands...>, Propagation<Rule, Operands...>::valid>::type;
};

/// The error sentences for rows grouped by expert; the trace shows the layouts.
template <bool taken, bool alike> struct RaggedOperands {
  static_assert(
      taken,
      "Ragged: rows grouped by expert support only grouped products, elementwise functions, elementwise products of two such tensors, and combine() (combine them first)");
  static_assert(
      alike,
      "Ragged: both operands must come from the same dispatch (dispatch what is combined with them in the same way)");
};

/// For operations without a separate rule: the error sentence for a layout of rows grouped by expert.
template <class Layout> struct WholeRows : RaggedOperands<!is_ragged<Layout>, true> {
  static constexpr bool value = !is_ragged<Layout>;
};

template <class Layout> struct RaggedKind {};
template <class Layout>
requires is_ragged<Layout>
struct RaggedKind<Layout> {
  using type = typename Layout::template with_columns<TensorLayout<1>>;
};

/// The rule applied to the columns.
template <bool valid, class Rule, class... Operands> struct RaggedResult { using type = InvalidLayout; };

template <class Rule, class First, class... Rest>
requires any_ragged<First, Rest...>
struct Propagated<Rule, First, Rest...> {
  static constexpr bool reported = any_invalid<First, Rest...>;
  static constexpr bool taken =
      reported || (takes_ragged<Rule> && is_ragged<First> && (true && ... && is_ragged<Rest>));
  static constexpr bool alike = [] {
    if constexpr (taken && !reported)
      return (true && ... &&
              std::is_same_v<typename RaggedKind<First>::type, typename RaggedKind<Rest>::type>);
    else
      return true;
  }();
  static_assert(sizeof(RaggedOperands<taken, alike>) != 0);
  using type = typename RaggedResult<taken && alike && !reported, Rule, First, Rest...>::type;
};
template <class Rule, class First, class... Rest> struct RaggedResult<true, Rule, First, Rest...> {
  using columns = typename Propagated<Rule, typename First::columns, typename Rest::columns...>::type;
  using type = typename First::template with_columns<columns>;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
