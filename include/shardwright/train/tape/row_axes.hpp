// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The axes along which ranks hold different rows of the data that a value on a tape is computed from.

#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A set of a mesh's axes. The type of a sum no longer names the axes over which it was reduced, so each
/// value on a tape carries those that split its data: a loss must count its tokens over them.
class RowAxes {
public:
  constexpr RowAxes() = default;

  /// The axes that split the first `dimensions` dimensions of a layout; one rank splits nothing.
  template <LayoutType L> [[nodiscard]] static RowAxes of(const MeshCore& core, int dimensions) {
    return splitting(core, L::axes, L::value, dimensions);
  }
  /// Those of a tensor of data: of all dimensions but the features, which are the last of several.
  template <LayoutType L> [[nodiscard]] static RowAxes of_data(const MeshCore& core) {
    return of<L>(core, L::tensor_rank > 1 ? L::tensor_rank - 1 : L::tensor_rank);
  }

  RowAxes& operator|=(RowAxes other) noexcept {
    bits_ |= other.bits_;
    return *this;
  }
  /// After a transition: a rank that gathers rows has those of all.
  template <LayoutType From, LayoutType To> [[nodiscard]] RowAxes after(const MeshCore& core) const {
    if (bits_ == 0)
      return {};
    RowAxes gathered = of<From>(core, From::tensor_rank);
    gathered.bits_ &= ~of<To>(core, To::tensor_rank).bits_;
    return RowAxes(bits_ & ~gathered.bits_);
  }
  /// The first axis that a layout does not name, or -1.
  [[nodiscard]] int first_beyond(const MeshCore& core, std::span<const std::string_view> axes) const {
    for (int axis = 0; axis < core.axis_count(); ++axis)
      if ((bits_ & 1u << axis) != 0 && axis_index(axes, core.name(axis)) < 0)
        return axis;
    return -1;
  }

private:
  explicit constexpr RowAxes(std::uint32_t bits) : bits_(bits) {}

  [[nodiscard]] static RowAxes splitting(const MeshCore& core, std::span<const std::string_view> axes,
                                         const LayoutValue& layout, int dimensions);

  std::uint32_t bits_ = 0;
};

#if !defined(SHARDWRIGHT_COMPILED)
[[gnu::noinline]] SHARDWRIGHT_INLINE RowAxes RowAxes::splitting(const MeshCore& core,
                                                                std::span<const std::string_view> axes,
                                                                const LayoutValue& layout, int dimensions) {
  RowAxes out;
  for (int axis = 0; axis < core.axis_count(); ++axis) {
    const int named = core.extent(axis) > 1 ? axis_index(axes, core.name(axis)) : -1;
    const int dimension = named < 0 ? -1 : layout.dimension_of(named);
    if (dimension >= 0 && dimension < dimensions)
      out.bits_ |= 1u << axis;
  }
  return out;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
