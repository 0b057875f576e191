// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The extents that a program gives for a tensor: one for each dimension of its layout.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/experts/route.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Names the layout and the number of extents.
template <class L, std::size_t given> struct ExtentsOf {
  static constexpr bool value = static_cast<int>(given) == L::tensor_rank || any_invalid<L>;
  static_assert(
      value,
      "Shape: there must be one extent for each dimension of the layout (give as many extents, or name the rank that they have in the layout)");
};

/// The shape of a tensor of layout `L` as an argument: `{4, 8}`, an array, or another tensor's shape.
template <class L> class GivenShape {
public:
  using Shape = typename ShapeOf<L>::type;

  GivenShape() noexcept { static_cast<void>(ExtentsOf<L, 0>::value); }
  GivenShape(const Shape& given) noexcept : shape(given) {}
  template <std::integral... Extents>
  requires(sizeof...(Extents) > 0 && !is_ragged<L>) GivenShape(Extents... extents)
  noexcept {
    if constexpr (ExtentsOf<L, sizeof...(Extents)>::value)
      shape = {static_cast<std::int64_t>(extents)...};
  }
  template <std::size_t given>
  requires(!is_ragged<L>) GivenShape(const std::array<std::int64_t, given>&)
  noexcept {
    static_cast<void>(ExtentsOf<L, given>::value); // arrays that fit take the constructor above
  }

  Shape shape{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
