// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Combines a layout's axes with a mesh's extents into this rank's local shape, offset and views.

#include <shardwright/core/error.hpp>
#include <shardwright/core/integers.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// This rank in a mesh. Compiled once: every tensor notes it.
[[nodiscard]] int rank_in(const MeshCore& core);

/// "[4, 512]".
[[nodiscard]] std::string text_of(std::span<const std::int64_t> shape);

/// A table of axes bound to a mesh: the mesh axis, extent and this rank's coordinate for each.
struct AxisBinding {
  std::array<int, max_axes> mesh_axis{};
  std::array<int, max_axes> extents{};
  std::array<int, max_axes> coordinates{};
};

/// Those axes of a list that divide the model, as bits.
template <class... Axes> [[nodiscard]] constexpr unsigned model_axes_of(AxisList<Axes...>) {
  [[maybe_unused]] unsigned bit = 1; // a list may be empty
  unsigned out = 0;
  ((out |= divides_model<Axes> ? bit : 0, bit <<= 1), ...);
  return out;
}
/// @throws InvalidArgument for one of them that the mesh lacks.
void require_model_axes(const MeshCore& core, std::span<const std::string_view> names, unsigned model_axes);

/// An axis that the mesh lacks has extent 1.
[[nodiscard]] AxisBinding bind_axes(const MeshCore& core, std::span<const std::string_view> names);

/// Ranks that share a dimension.
[[nodiscard]] inline std::int64_t ranks_along(const MeshCore& core, const LayoutValue& layout,
                                              std::span<const std::string_view> axes, int dimension) {
  const AxisBinding binding = bind_axes(core, axes);
  std::int64_t ranks = 1;
  for (const int axis : layout.shard(dimension))
    ranks *= binding.extents[static_cast<std::size_t>(axis)];
  return ranks;
}

/// The block of a dimension of a bound layout.
[[nodiscard]] inline DimensionBlock block_at(const LayoutValue& layout, std::size_t dimension,
                                             const AxisBinding& binding, std::int64_t extent) {
  return dimension_block(layout, static_cast<int>(dimension), binding.extents, binding.coordinates, extent);
}

/// The product of extents, or of those of the dimensions [first, last).
template <std::size_t rank>
[[nodiscard]] constexpr std::size_t product(const std::array<std::int64_t, rank>& extents,
                                            std::size_t first = 0, std::size_t last = rank) noexcept {
  std::size_t out = 1;
  for (std::size_t d = first; d < last; ++d)
    out *= static_cast<std::size_t>(extents[d]);
  return out;
}

/// The same extents with a different last one.
template <std::size_t rank>
[[nodiscard]] constexpr std::array<std::int64_t, rank> with_last(std::array<std::int64_t, rank> extents,
                                                                 std::int64_t last) noexcept {
  extents.back() = last;
  return extents;
}

/// @throws InvalidArgument for a negative extent, and if the size in bytes does not fit 63 bits.
void check_shape(std::span<const std::int64_t> shape, std::size_t element_bytes, SourceLocation where);

/// This rank's extents, halos included, of a tensor of a shape. Compiled once, not for every layout.
void write_local_shape(const MeshCore& core, const LayoutValue& layout,
                       std::span<const std::string_view> axes, std::span<const std::int64_t> shape,
                       std::int64_t* out);
template <class LayoutType, std::size_t rank>
[[nodiscard]] std::array<std::int64_t, rank> local_shape_of(const MeshCore& core,
                                                            const std::array<std::int64_t, rank>& shape) {
  std::array<std::int64_t, rank> local{};
  write_local_shape(core, LayoutType::value, LayoutType::axes, shape, local.data());
  return local;
}

/// The global index of the first element that this rank owns.
void write_local_offset(const MeshCore& core, const LayoutValue& layout,
                        std::span<const std::string_view> axes, std::span<const std::int64_t> shape,
                        std::int64_t* out);
template <class LayoutType, std::size_t rank>
[[nodiscard]] std::array<std::int64_t, rank> local_offset_of(const MeshCore& core,
                                                             const std::array<std::int64_t, rank>& shape) {
  std::array<std::int64_t, rank> offset{};
  write_local_offset(core, LayoutType::value, LayoutType::axes, shape, offset.data());
  return offset;
}

template <class View, class Pointer, std::size_t rank>
[[nodiscard]] View make_view(Pointer* data, const std::array<std::int64_t, rank>& extents) {
  return [&]<std::size_t... d>(std::index_sequence<d...>) {
    return View(data, static_cast<std::size_t>(extents[d])...);
  }
  (std::make_index_sequence<rank>{});
}

/// The elements of a row-major block without the halos around them.
template <class View, class LayoutType, class Pointer, std::size_t rank>
[[nodiscard]] View make_owned_view(Pointer* data, const std::array<std::int64_t, rank>& extents) {
  Kokkos::LayoutStride strides;
  std::size_t stride = 1;
  for (std::size_t d = rank; d-- > 0; stride *= static_cast<std::size_t>(extents[d])) {
    const DimensionHalo halo = LayoutType::value.halo(static_cast<int>(d));
    strides.dimension[d] = static_cast<std::size_t>(extents[d] - halo.width());
    strides.stride[d] = stride;
    data += static_cast<std::size_t>(halo.before()) * stride;
  }
  return View(data, strides);
}

/// [product of the leading extents, last extent]; a vector is one row.
template <class View, class Pointer, std::size_t rank>
[[nodiscard]] View make_matrix(Pointer* data, const std::array<std::int64_t, rank>& extents) {
  constexpr std::size_t last = rank == 0 ? 0 : rank - 1;
  return View(data, product(extents, 0, last), product(extents, last));
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE int rank_in(const MeshCore& core) { return core.world().rank(); }

SHARDWRIGHT_INLINE std::string text_of(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

[[noreturn]] inline void reject_axis(const MeshCore& core, std::string_view name) {
  throw InvalidArgument(
      "Mesh: an axis that divides the model must not be named on a mesh that lacks it, but a layout names " +
          std::string(name) +
          ", along which ranks hold other parts of the model (name other axes, or use the mesh that has it)",
      {.rank = core.world().rank()});
}
SHARDWRIGHT_INLINE void require_model_axes(const MeshCore& core, std::span<const std::string_view> names,
                                           unsigned model_axes) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if ((model_axes >> i & 1u) != 0 && core.axis_index(names[i]) == MeshCore::absent_axis)
      reject_axis(core, names[i]);
}

SHARDWRIGHT_INLINE AxisBinding bind_axes(const MeshCore& core, std::span<const std::string_view> names) {
  AxisBinding binding;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const int axis = core.axis_index(names[i]);
    binding.mesh_axis[i] = axis;
    binding.extents[i] = core.extent(axis);
    binding.coordinates[i] = core.coordinate(axis);
  }
  return binding;
}

SHARDWRIGHT_INLINE void check_shape(std::span<const std::int64_t> shape, std::size_t element_bytes,
                                    SourceLocation where) {
  CheckedInteger bytes{static_cast<std::int64_t>(element_bytes), true};
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      throw InvalidArgument("ShardedTensor: every extent must be at least 0, but " + std::to_string(extent) +
                                " was given",
                            {.where = where});
    }
    if (bytes.fits)
      bytes = checked_multiply(bytes.value, extent);
  }
  if (!bytes.fits)
    throw InvalidArgument("ShardedTensor: the size in bytes must fit 63 bits (use a smaller shape)",
                          {.where = where});
}

SHARDWRIGHT_INLINE void write_local_shape(const MeshCore& core, const LayoutValue& layout,
                                          std::span<const std::string_view> axes,
                                          std::span<const std::int64_t> shape, std::int64_t* out) {
  const AxisBinding binding = bind_axes(core, axes);
  for (std::size_t d = 0; d < shape.size(); ++d)
    out[d] = block_at(layout, d, binding, shape[d]).size + layout.halo(static_cast<int>(d)).width();
}

SHARDWRIGHT_INLINE void write_local_offset(const MeshCore& core, const LayoutValue& layout,
                                           std::span<const std::string_view> axes,
                                           std::span<const std::int64_t> shape, std::int64_t* out) {
  const AxisBinding binding = bind_axes(core, axes);
  for (std::size_t d = 0; d < shape.size(); ++d)
    out[d] =
        dimension_block(layout, static_cast<int>(d), binding.extents, binding.coordinates, shape[d]).offset;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
