// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts of Fourier transforms, whose dimensions must be whole on each rank.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/layout.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The dimensions of a transform; none are all of the tensor.
template <int rank, int... dimensions> struct TransformedDimensions {
  static constexpr bool given = sizeof...(dimensions) > 0;
  static constexpr bool inside = ((dimensions >= 0 && dimensions < rank) && ...);
  [[nodiscard]] static constexpr bool has(int dimension) {
    return !given || ((dimension == dimensions) || ...);
  }
  static constexpr bool distinct = [] {
    int found = 0;
    for (int d = 0; d < rank; ++d)
      found += has(d);
    return !given || !inside || found == static_cast<int>(sizeof...(dimensions));
  }();
};

/// The layout in which a dimension is whole: its axes split the first dimension that is whole and not
/// transformed, or none.
template <class Input, class Dimensions, int dimension> struct WholeDimensionHolder {
  using table = typename Input::axis_list;
  static constexpr LayoutValue value = [] {
    LayoutValue out = Input::value;
    for (int d = 0; d < Input::tensor_rank; ++d)
      if (out.shard(d).empty() && !Dimensions::has(d)) {
        out.shard(d) = out.shard(dimension);
        break;
      }
    out.shard(dimension) = {};
    return out;
  }();
};

/// Compilers print this condition with the dimension and the layout to redistribute to.
template <int dimension, class From, class RedistributeTo, bool whole>
inline constexpr bool dimension_is_whole = whole;

template <class Input, class Dimensions, int dimension> struct TransformOver {
  using RedistributeTo =
      typename LayoutOrInvalid<WholeDimensionHolder<Input, Dimensions, dimension>, true>::type;
  static_assert(
      dimension_is_whole < dimension, Input, RedistributeTo,
      !Dimensions::has(dimension) || Input::value.shard(dimension).empty() >,
      "Fourier transform: a dimension that is transformed must be whole on each rank, but an axis splits it (redistribute the tensor to the last layout that the trace names)");
};

template <class Input, class Dimensions, class Indices> struct TransformOverAll;
template <class Input, class Dimensions, int... dimension>
struct TransformOverAll<Input, Dimensions, std::integer_sequence<int, dimension...>>
    : TransformOver<Input, Dimensions, dimension>... {};

template <class Input, class Dimensions> struct TransformCheck {
  static constexpr bool inside = Input::tensor_rank > 0 && Dimensions::inside;
  static_assert(
      inside,
      "Fourier transform: its dimensions must be at least 0 and less than the tensor rank (count from 0)");
  static_assert(Dimensions::distinct,
                "Fourier transform: a dimension must be named once (remove the second one)");
  static_assert(
      !has_halos<Input>,
      "Fourier transform: the input must not carry halos (redistribute it to WithoutHalos of its layout)");
  static_assert(sizeof(WholeRows<Input>) != 0);
  static_assert(
      sizeof(TransformOverAll<Input, Dimensions, std::make_integer_sequence<int, Input::tensor_rank>>) != 0);
};

/// Whether TransformCheck holds, without its sentences.
template <class Input, class Dimensions>
inline constexpr bool transform_fits = Input::tensor_rank > 0 && Dimensions::inside&& Dimensions::distinct &&
                                       !has_halos<Input> && !is_ragged<Input> && [] {
                                         for (int d = 0; d < Input::tensor_rank; ++d)
                                           if (Dimensions::has(d) && !Input::value.shard(d).empty())
                                             return false;
                                         return true;
                                       }();

template <class Input, int... dimensions> struct TransformLayoutOf {
  using Dimensions = TransformedDimensions<Input::tensor_rank, dimensions...>;
  static_assert(sizeof(TransformCheck<Input, Dimensions>) != 0);
  using type =
      std::conditional_t<transform_fits<Input, Dimensions>, ElementwiseLinearLayout<Input>, InvalidLayout>;
};
template <int... dimensions> struct TransformLayoutOf<InvalidLayout, dimensions...> {
  using type = InvalidLayout;
};

} // namespace detail

/// @brief Layout after a Fourier transform over dimensions, or over all: unchanged, because they must be
/// whole on each rank. It is linear: Partial<Sum> and Partial<Avg> pass through.
template <LayoutType Input, int... dimensions>
using TransformLayout = typename detail::TransformLayoutOf<Input, dimensions...>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
