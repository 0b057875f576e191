// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts after swapping two dimensions, and after regrouping neighbouring ones.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>
#include <shardwright/layout/layout.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Input> struct ShapeWithoutHalos {
  static constexpr bool value = !has_halos<Input> && WholeRows<Input>::value;
  static_assert(
      !has_halos<Input>,
      "transpose, reshape: the input must not carry halos (redistribute it to WithoutHalos of its layout)");
};

template <class Input, int first, int second> struct TransposeCheck {
  static constexpr int rank = Input::tensor_rank;
  static constexpr bool inside =
      any_invalid<Input> || (first >= 0 && second >= 0 && first < rank && second < rank);
  static_assert(inside,
                "transpose: both dimensions must be at least 0 and less than the tensor rank (count from 0)");
  static constexpr bool valid = inside && !any_invalid<Input> && ShapeWithoutHalos<Input>::value;
};

template <class Input, int first, int second> struct TransposedHolder {
  using table = typename Input::axis_list;
  static constexpr LayoutValue value = [] {
    LayoutValue out = Input::value;
    std::swap(out.shard(first), out.shard(second));
    return out;
  }();
};

/// Dimensions [first, first + count) become `made` others.
template <class Input, int first, int count, int made> struct RegroupCheck {
  static constexpr int rank = Input::tensor_rank;
  static constexpr bool inside = any_invalid<Input> || (first >= 0 && count >= 1 && first + count <= rank);
  static_assert(
      inside,
      "reshape: the dimensions must be at least 0 and less than the tensor rank, and at least one (count from 0)");
  static constexpr bool fits = any_invalid<Input> || (made >= 0 && rank - count + made <= max_tensor_rank);
  static_assert(fits, "reshape: the result must have at most 6 dimensions (merge some)");
  static constexpr bool whole = [] {
    if constexpr (any_invalid<Input> || !inside) {
      return true;
    } else {
      for (int d = first + (made > 0 ? 1 : 0); d < first + count; ++d)
        if (!Input::value.shard(d).empty())
          return false;
      return true;
    }
  }();
  static_assert(
      whole,
      "reshape: of the dimensions that are regrouped only the first may be sharded (redistribute the input, or merge and split dimensions that are not)");
  static constexpr bool valid =
      inside && fits && whole && !any_invalid<Input> && ShapeWithoutHalos<Input>::value;
};

template <class Input, int first, int count, int made> struct RegroupedHolder {
  using table = typename Input::axis_list;
  static constexpr LayoutValue value = [] {
    LayoutValue out = Input::value;
    out.tensor_rank = Input::tensor_rank - count + made;
    for (auto& axes : out.shards)
      axes = {};
    for (int d = 0; d < first; ++d)
      out.shard(d) = Input::value.shard(d);
    if (made > 0)
      out.shard(first) = Input::value.shard(first);
    for (int d = first + count; d < Input::tensor_rank; ++d)
      out.shard(d - count + made) = Input::value.shard(d);
    return out;
  }();
};

} // namespace detail

/// @brief Layout after swapping dimensions `first` and `second`, with their shards; a Partial is kept.
template <LayoutType Input, int first, int second>
using TransposeLayout =
    typename detail::LayoutOrInvalid<detail::TransposedHolder<Input, first, second>,
                                     detail::TransposeCheck<Input, first, second>::valid>::type;

/// @brief Layout after regrouping the dimensions [first, first + count) into `made` others with as many
/// elements, in the same order. Only the first of them may be sharded; its axes then shard the first new
/// dimension. A Partial is kept.
template <LayoutType Input, int first, int count, int made>
using RegroupLayout =
    typename detail::LayoutOrInvalid<detail::RegroupedHolder<Input, first, count, made>,
                                     detail::RegroupCheck<Input, first, count, made>::valid>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
