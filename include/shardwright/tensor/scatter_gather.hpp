// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Scatters a whole tensor from one rank to all ranks, and gathers it back.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/halo/plans.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

inline constexpr int scatter_tag = 0x5ca7;
inline constexpr int gather_tag = 0x6a77;

/// The elements of a rank of the mesh in the whole tensor.
template <class LayoutType, std::size_t rank>
[[nodiscard]] ElementBox box_of(const MeshCore& core, int mesh_rank,
                                const std::array<std::int64_t, rank>& shape) {
  AxisBinding binding = bind_axes(core, LayoutType::axes);
  for (std::size_t i = 0; i < LayoutType::axes.size(); ++i)
    binding.coordinates[i] = core.coordinate_of(mesh_rank, binding.mesh_axis[i]);
  std::array<std::int64_t, rank> offset{}, extents{};
  for (std::size_t d = 0; d < rank; ++d) {
    const DimensionBlock block = block_at(LayoutType::value, d, binding, shape[d]);
    offset[d] = block.offset;
    extents[d] = block.size;
  }
  return box_in(shape, offset, extents);
}

/// Calls visit(position in the whole, position in the packed box, length) for every run of a box.
template <class Visit> void for_each_run(const ElementBox& box, Visit visit) {
  std::size_t packed = 0;
  for (std::size_t slab = 0; slab < box.slabs(); ++slab)
    for (std::size_t row = 0; row < box.rows; ++row, packed += box.columns)
      visit(box.slab(slab) + row * box.row_stride, packed, box.columns);
}

template <class LayoutType> struct CompleteFor {
  static_assert(!LayoutType::value.has_partial(),
                "gather: the tensor must not be Partial, an incomplete sum (redistribute it first)");
  static_assert(!has_halos<LayoutType>,
                "gather: the tensor must have no halos (redistribute it to WithoutHalos of its layout)");
  static constexpr bool value =
      !LayoutType::value.has_partial() && !has_halos<LayoutType> && WholeRows<LayoutType>::value;
};
template <class LayoutType> struct ScatteredInto {
  static_assert(
      !LayoutType::value.has_partial(),
      "scatter: the layout must not be Partial, as every rank's part would count (scatter into Shard or Replicate)");
  static_assert(!has_halos<LayoutType>,
                "scatter: the layout must have no halos (scatter into WithoutHalos of it, and redistribute)");
  static constexpr bool value = !LayoutType::value.has_partial() && !has_halos<LayoutType>;
};

inline void require_root(const char* operation, const MeshCore& core, int root, SourceLocation where) {
  if (root < 0 || root >= core.world().size())
    reject_operation(operation,
                     "the root must be a rank of the mesh, below " + std::to_string(core.world().size()) +
                         ", but it is " + std::to_string(root) + " (name a rank of the mesh)",
                     core, where);
}

} // namespace detail

/// @brief This rank's block on the host, row-major: an explicit copy, which waits for the kernels that
/// compute the block. Not collective.
template <class L, class E, class Target>
[[nodiscard]] std::vector<std::remove_const_t<E>> local_values(const ShardedTensor<L, E, Target>& tensor) {
  std::vector<std::remove_const_t<E>> values(tensor.local_size());
  detail::copy_to_host<Target>(tensor.execution(), tensor.data(), values.data(), values.size());
  return values;
}

/// @brief Fills this rank's block from the host, row-major: an explicit copy, which waits. Not collective.
/// @throws InvalidArgument if the number of values is not that of the block's elements.
template <class L, class E, class Target, class Data>
void set_local_values(ShardedTensor<L, E, Target>& tensor, const Data& values,
                      SourceLocation where = SourceLocation::current()) {
  if (std::size(values) != tensor.local_size())
    detail::reject_operation("set_local_values",
                             "the values must be the " + std::to_string(tensor.local_size()) +
                                 " elements of this rank's block, but they are " +
                                 std::to_string(std::size(values)) + " (take the sizes from local_shape())",
                             tensor.core(), where);
  detail::copy_to_target<Target>(tensor.execution(), std::data(values), tensor.mutable_data(),
                                 tensor.local_size());
}

/// @brief Makes a tensor from all of its elements on one rank: every rank receives its block.
///
/// Collective over the mesh. The root packs and sends one block after another; no other rank holds more than
/// its block. Blocks are sent between hosts; a block on a device is copied there explicitly, with a wait.
/// @param data row-major, `shape` elements on the root; ignored elsewhere
/// @throws InvalidArgument if the data's size is not the shape's or the root is not a rank.
template <LayoutType L, class Target = DefaultTarget, class... Axes, class Data>
[[nodiscard]] auto scatter(const DeviceMesh<Axes...>& mesh, int root, const Data& data,
                           const detail::GivenShape<L>& given_shape,
                           SourceLocation where = SourceLocation::current()) {
  const auto& shape = given_shape.shape;
  using Element = std::remove_cv_t<detail::element_of<const Data>>;
  ShardedTensor<L, Element, Target> out(mesh, shape, where);
  if constexpr (detail::ScatteredInto<L>::value) {
    detail::MeshCore& core = mesh.core();
    detail::require_root("scatter", core, root, where);
    HostCommunicator world = core.world();
    if (world.rank() != root) {
      std::vector<Element> staging(Target::host_accessible ? 0 : out.local_size());
      Element* const to = Target::host_accessible ? out.mutable_data() : staging.data();
      if (out.local_size() > 0)
        world.receive(std::span(to, out.local_size()), root, detail::scatter_tag, where);
      if constexpr (!Target::host_accessible)
        detail::copy_to_target<Target>(out.execution(), to, out.mutable_data(), out.local_size());
      return out;
    }
    if (std::size(data) != out.size())
      detail::reject_operation("scatter",
                               "the data must hold the " + std::to_string(out.size()) +
                                   " elements of the shape " + detail::text_of(shape) + ", but it holds " +
                                   std::to_string(std::size(data)) + " (give the whole tensor on the root)",
                               core, where);
    std::vector<Element> packed;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto box = detail::box_of<L>(core, rank, shape);
      packed.resize(box.count());
      detail::for_each_run(box, [&](std::size_t from, std::size_t to, std::size_t run) {
        std::copy_n(std::data(data) + from, run, packed.data() + to);
      });
      if (rank == root)
        detail::copy_to_target<Target>(out.execution(), packed.data(), out.mutable_data(), packed.size());
      else if (!packed.empty())
        world.send(std::span<const Element>(packed), rank, detail::scatter_tag, where);
    }
  }
  return out;
}

/// @brief The whole tensor, row-major, on one rank; an empty vector on the others.
///
/// Collective over the mesh. One replica of every block is sent; no rank but the root holds more than its
/// block. Blocks are sent between hosts; a block on a device is copied to its host explicitly, with a wait.
/// @throws InvalidArgument if the root is not a rank of the mesh.
template <class L, class E, class Target>
[[nodiscard]] std::vector<std::remove_const_t<E>> gather(const ShardedTensor<L, E, Target>& tensor, int root,
                                                         SourceLocation where = SourceLocation::current()) {
  using Element = std::remove_const_t<E>;
  std::vector<Element> whole;
  if constexpr (detail::CompleteFor<L>::value) {
    detail::begin_operation(where, tensor);
    detail::MeshCore& core = tensor.core();
    detail::require_root("gather", core, root, where);
    HostCommunicator world = core.world();
    // The replica that sends has the root's coordinate on every axis that shards nothing.
    const auto sends = [&](int rank) {
      for (int axis = 0; axis < core.axis_count(); ++axis) {
        const int index = axis_index(L::axes, core.name(axis));
        if ((index < 0 || L::value.is_replicated(index)) &&
            core.coordinate_of(rank, axis) != core.coordinate_of(root, axis))
          return false;
      }
      return true;
    };
    std::vector<Element> packed;
    if (world.rank() != root) {
      if (!sends(world.rank()) || tensor.local_size() == 0)
        return whole;
      if constexpr (!Target::host_accessible)
        packed.resize(tensor.local_size());
      const Element* from = tensor.data();
      if constexpr (!Target::host_accessible) {
        detail::copy_to_host<Target>(tensor.execution(), tensor.data(), packed.data(), packed.size());
        from = packed.data();
      } else {
        detail::wait_for_kernels(tensor.execution()); // the host's communicator reads now
      }
      world.send(std::span(from, tensor.local_size()), root, detail::gather_tag, where);
      return whole;
    }
    whole.resize(tensor.size());
    for (int rank = 0; rank < world.size(); ++rank) {
      if (!sends(rank))
        continue;
      const auto box = detail::box_of<L>(core, rank, tensor.shape());
      packed.resize(box.count());
      if (rank == root)
        detail::copy_to_host<Target>(tensor.execution(), tensor.data(), packed.data(), packed.size());
      else if (!packed.empty())
        world.receive(std::span<Element>(packed), rank, detail::gather_tag, where);
      detail::for_each_run(box, [&](std::size_t to, std::size_t from, std::size_t run) {
        std::copy_n(packed.data() + from, run, whole.data() + to);
      });
    }
  }
  return whole;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
