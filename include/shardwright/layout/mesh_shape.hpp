// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Extents of mesh axes, static or run-time, and the mesh shape that they form.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/mesh_check.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Extent of an axis that is known at run time.
template <Axis A> struct RuntimeExtent {
  using axis = A;
  static constexpr bool is_static = false;
  std::int64_t value = 1;
};

/// @brief Extent of an axis that is part of the type.
template <Axis A, std::int64_t extent_value> struct StaticExtent {
  static_assert(extent_value > 0,
                "extent: a static extent must be positive (use 1 for an axis that is not needed)");
  using axis = A;
  static constexpr bool is_static = true;
  static constexpr std::int64_t value = extent_value;
};

/// @brief A run-time extent: `extent<dp>(2)`.
template <Axis A> [[nodiscard]] constexpr RuntimeExtent<A> extent(std::int64_t value) { return {value}; }

/// @brief Rejects a type that is not an axis, with an error sentence.
template <class Tag>
requires(!Axis<Tag>) [[nodiscard]] constexpr RuntimeExtent<detail::no_axis> extent(std::int64_t value) {
  static_assert(detail::NamedAxis<Tag>::value);
  return {value};
}

/// @brief A static extent: `extent<dp, 2>()`.
template <Axis A, std::int64_t value> [[nodiscard]] constexpr StaticExtent<A, value> extent() { return {}; }
template <class Tag, std::int64_t value>
requires(!Axis<Tag>) [[nodiscard]] constexpr StaticExtent<detail::no_axis, value> extent() {
  static_assert(detail::NamedAxis<Tag>::value);
  return {};
}

namespace detail {

template <class Type> inline constexpr bool is_extent = false;
template <class A> inline constexpr bool is_extent<RuntimeExtent<A>> = true;
template <class A, std::int64_t value> inline constexpr bool is_extent<StaticExtent<A, value>> = true;

} // namespace detail

/// @brief An extent, static or run-time.
template <class Type>
concept MeshExtent = detail::is_extent<std::remove_cvref_t<Type>>;

/// @brief The axes of a mesh, outermost first, with their extents; ranks are numbered in row-major order.
template <MeshExtent... Extents> class MeshShape {
public:
  /// Axes in mesh order, major to minor.
  using axis_list = AxisList<typename Extents::axis...>;
  static constexpr int axis_count = sizeof...(Extents);
  /// Names of the axes in mesh order.
  static constexpr auto axes = axis_list::names;

  static_assert(SortedAxes<typename Extents::axis...>::size == axis_count,
                "MeshShape: an axis may appear only once in a mesh (remove the second one)");

  /// @throws InvalidArgument if an extent is not positive or the product overflows.
  constexpr explicit MeshShape(Extents... extents) : extents_{static_cast<int>(extents.value)...} {
    const std::array<std::int64_t, sizeof...(Extents)> wide{extents.value...};
    detail::check_extents(axes, wide);
  }

  /// @brief True if the mesh has the axis.
  template <Axis A> static constexpr bool has = axis_index(axes, A::name) >= 0;

  /// @brief Extent of one axis; 1 if the mesh lacks it.
  template <Axis A> [[nodiscard]] constexpr int extent_of() const {
    static_cast<void>(detail::AxisOnMesh<A, has<A>>::allowed);
    if constexpr (has<A>)
      return extents_[static_cast<std::size_t>(axis_index(axes, A::name))];
    else
      return 1;
  }

  /// @brief Ranks in the mesh: the product of the extents.
  [[nodiscard]] constexpr std::int64_t size() const noexcept {
    std::int64_t product = 1;
    for (const int extent : extents_)
      product *= extent;
    return product;
  }

private:
  std::array<int, sizeof...(Extents)> extents_;
};

template <MeshExtent... Extents> MeshShape(Extents...) -> MeshShape<Extents...>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
