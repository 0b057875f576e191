// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief DeviceMesh: named axes over the ranks of a world, with a communicator for every set of axes.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/mesh_check.hpp>
#include <shardwright/layout/mesh_shape.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/target.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Interprets a template argument of DeviceMesh: an axis with a run-time extent, or one with its extent in
/// the type.
template <class Entry> struct MeshEntry {
  using axis = Entry;
  static constexpr std::int64_t static_extent = 0;
};
template <class A, std::int64_t value> struct MeshEntry<StaticExtent<A, value>> {
  using axis = A;
  static constexpr std::int64_t static_extent = value;
};

template <class Extent> struct EntryFromExtent { using type = Extent; };
template <class A> struct EntryFromExtent<RuntimeExtent<A>> { using type = A; };

} // namespace detail

/// @brief Named axes over the ranks of a world: `DeviceMesh mesh{world, extent<dp>(2), extent<tp>(4)}`.
///
/// Axes go from the outermost (slowest links) to the innermost: neighbouring ranks differ in the last axis.
/// Template arguments are axis tags, or StaticExtent if the extent belongs to the type. An axis that a mesh
/// lacks has extent 1, wherever it is named; only one that divides the model, such as pp, does not compile. A
/// mesh is a handle for one rank's thread: copies refer to the same groups and pools. Tensors keep alive what
/// they need of it. Cost: three splits for each set of axes of extent above 1.
template <class... Axes> class DeviceMesh {
public:
  /// Axes in mesh order.
  using axis_list = AxisList<typename detail::MeshEntry<Axes>::axis...>;
  static_assert(SortedAxes<typename detail::MeshEntry<Axes>::axis...>::size == axis_list::size,
                "DeviceMesh: an axis may appear only once in a mesh (remove the second one)");
  static_assert(axis_list::size <= detail::MeshCore::max_axes,
                "DeviceMesh: a mesh has at most 8 axes (flatten some)");

  /// @brief Collective over `world`: all ranks must pass the same extents. Cost: one all_gather of 72 bytes
  /// per rank, and 3 x 2^w - 1 splits for w axes longer than 1.
  /// @throws InvalidArgument if an extent is not positive or their product is not the number of ranks (the
  /// message names the nearest meshes that fit); ConfigurationMismatch if ranks pass different meshes.
  template <MeshExtent... Extents>
  explicit DeviceMesh(const HostCommunicator& world, Extents... extents) : core_(nullptr) {
    static_assert(sizeof...(Extents) == sizeof...(Axes),
                  "DeviceMesh: give one extent for each axis, in the mesh's order");
    if constexpr (sizeof...(Extents) == sizeof...(Axes))
      static_assert(
          (true && ... && std::is_same_v<typename detail::EntryFromExtent<Extents>::type, Axes>),
          "DeviceMesh: the extents must be those of the mesh's type, in its order (write DeviceMesh mesh{...} and let the type follow)");
    const std::array<std::int64_t, sizeof...(Axes)> wide{static_cast<std::int64_t>(extents.value)...};
    check_mesh(axis_list::names, wide, world.size());
    std::array<int, sizeof...(Axes)> narrow{};
    for (std::size_t i = 0; i < wide.size(); ++i)
      narrow[i] = static_cast<int>(wide[i]);
    core_ = new detail::MeshCore(world, axis_list::names, narrow);
  }
  DeviceMesh(const DeviceMesh& other) noexcept : core_(other.core_) { detail::retain(*core_); }
  DeviceMesh& operator=(const DeviceMesh& other) noexcept {
    DeviceMesh copy(other);
    std::swap(core_, copy.core_);
    return *this;
  }
  ~DeviceMesh() { detail::release(*core_); }

  /// @brief True if the mesh has the axis.
  template <Axis A> static constexpr bool has = axis_index(axis_list::names, A::name) >= 0;
  /// @brief Extent of an axis if it is part of the type, else 0.
  template <Axis A>
  static constexpr std::int64_t static_extent =
      (0 + ... +
       (detail::MeshEntry<Axes>::axis::name == A::name ? detail::MeshEntry<Axes>::static_extent : 0));

  /// @brief Ranks along an axis; 1 if the mesh lacks it.
  template <class A> [[nodiscard]] int extent() const { return core_->extent(index<A>()); }
  /// @brief This rank's coordinate along an axis, from 0.
  template <class A> [[nodiscard]] int coordinate() const { return core_->coordinate(index<A>()); }
  /// @brief The ranks that differ from this one only along the axes, numbered in mesh order; without axes,
  /// only this rank.
  template <class... A> [[nodiscard]] HostCommunicator& communicator() const {
    return core_->communicator((0u | ... | (1u << index<A>())));
  }
  /// @brief All ranks.
  [[nodiscard]] const HostCommunicator& world() const noexcept { return core_->world(); }
  /// @brief This rank in the world.
  [[nodiscard]] int rank() const { return core_->world().rank(); }
  /// @brief Ranks in the mesh.
  [[nodiscard]] int size() const { return core_->world().size(); }

  /// @brief Memory of this rank's pool on a target.
  template <Target Where = DefaultTarget> [[nodiscard]] const PoolStatistics& pool_statistics() const {
    return core_->template resources<Where>().statistics();
  }
  /// @brief Text appended to an out-of-memory error of this rank's pool, such as a MemoryTable's.
  template <Target Where = DefaultTarget> void set_memory_note(std::string note) const {
    core_->template resources<Where>().set_note(std::move(note));
  }
  /// @brief The instance on which this rank's kernels run on a target.
  template <Target Where = DefaultTarget>
  [[nodiscard]] const typename Where::execution_space& execution() const {
    return core_->template resources<Where>().execution();
  }
  /// @brief The run-time part, for the layers above.
  [[nodiscard]] detail::MeshCore& core() const noexcept { return *core_; }

private:
  template <class A> static constexpr int index() {
    if constexpr (detail::NamedAxis<A>::value) {
      static_cast<void>(detail::AxisOnMesh<A, has<A>>::allowed);
      if constexpr (has<A>)
        return axis_index(axis_list::names, A::name);
    }
    return detail::MeshCore::absent_axis;
  }

  detail::MeshCore* core_;
};

/// The axes follow from the extents.
template <MeshExtent... Extents>
DeviceMesh(const HostCommunicator&, Extents...)
    -> DeviceMesh<typename detail::EntryFromExtent<Extents>::type...>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
