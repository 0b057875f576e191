// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The axes of a mesh with their extents and one rank's coordinates, which determine the size of a
/// block.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/mesh_shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One rank's position on a mesh, as a value.
struct MeshPlace {
  int axis_count = 0;
  std::array<std::string_view, max_axes> names{};
  std::array<int, max_axes> extents{};
  std::array<int, max_axes> coordinates{};

  constexpr MeshPlace() = default;
  /// @brief The position of rank `rank` on a mesh of this shape.
  template <class... Extents>
  constexpr MeshPlace(const MeshShape<Extents...>& shape, std::int64_t rank)
      : axis_count(MeshShape<Extents...>::axis_count) {
    static_assert(sizeof...(Extents) <= max_axes, "MeshPlace: a mesh has at most 8 axes (flatten some)");
    const auto place = shape.coordinates_of(rank);
    for (std::size_t i = 0; i < sizeof...(Extents); ++i) {
      names[i] = MeshShape<Extents...>::axes[i];
      extents[i] = shape.extents()[i];
      coordinates[i] = place[i];
    }
  }

  /// @brief Extents and coordinates of the axes of a table, in its order. An axis that the mesh lacks has
  /// extent 1.
  struct Bound {
    std::array<int, max_axes> extents{};
    std::array<int, max_axes> coordinates{};
  };
  [[nodiscard]] constexpr Bound bind(std::span<const std::string_view> table) const {
    Bound bound;
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::size_t axis = 0;
      while (axis < static_cast<std::size_t>(axis_count) && names[axis] != table[i])
        ++axis;
      const bool present = axis < static_cast<std::size_t>(axis_count);
      bound.extents[i] = present ? extents[axis] : 1;
      bound.coordinates[i] = present ? coordinates[axis] : 0;
    }
    return bound;
  }

  /// @brief Extents of this rank's block of a tensor in layout `L`, its halos included.
  template <LayoutType L, std::size_t rank>
  [[nodiscard]] constexpr std::array<std::int64_t, rank>
  local_shape(const std::array<std::int64_t, rank>& shape) const {
    static_assert(
        L::tensor_rank == rank,
        "MeshPlace: the shape must have as many extents as the layout has dimensions (give one for each)");
    const Bound bound = bind(L::axes);
    std::array<std::int64_t, rank> local{};
    for (std::size_t d = 0; d < rank; ++d)
      local[d] =
          dimension_block(L::value, static_cast<int>(d), bound.extents, bound.coordinates, shape[d]).size +
          L::value.halo(static_cast<int>(d)).width();
    return local;
  }
  /// @brief Elements of this rank's block of a tensor in layout `L`.
  template <LayoutType L, std::size_t rank>
  [[nodiscard]] constexpr std::int64_t elements(const std::array<std::int64_t, rank>& shape) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : local_shape<L>(shape))
      count *= extent;
    return count;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
