// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Between a rank's block of a tensor and a checkpoint: staged to save, and read on any mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/block_hash.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/checkpoint/part.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/tensor/host_copy.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief A copy of a rank's block of a tensor. What happens to the tensor afterwards does not reach it.
struct StagedBlock {
  Block block; ///< Its bytes are those of `memory`; none on a rank that leaves them to another one.
  std::vector<std::byte> memory;
};

namespace detail {

template <class LayoutType>
struct Savable {
  static_assert(!LayoutType::value.has_halos(),
                "checkpoint: a tensor must have no halos (redistribute it to the layout without them)");
  static_assert(!LayoutType::value.has_partial(),
                "checkpoint: a tensor must not be Partial, an unfinished sum (redistribute it first)");
};

/// Which of its replicas a rank holds, and how many there are: ranks that differ along axes that shard
/// nothing.
struct Replica {
  std::uint64_t number = 0;
  std::uint64_t count = 1;
};

[[nodiscard]] inline Replica replica_of(const shardwright::detail::MeshCore& core, const LayoutValue& layout,
                                        std::span<const std::string_view> axes) {
  const shardwright::detail::AxisBinding binding = shardwright::detail::bind_axes(core, axes);
  unsigned shards = 0;
  for (int d = 0; d < layout.tensor_rank; ++d)
    for (const int axis : layout.shard(d))
      shards |= 1U << binding.mesh_axis[static_cast<std::size_t>(axis)];
  Replica out;
  for (int axis = 0; axis < core.axis_count(); ++axis)
    if ((shards >> axis & 1U) == 0) {
      const auto extent = static_cast<std::uint64_t>(core.extent(axis));
      out.number = out.number * extent + static_cast<std::uint64_t>(core.coordinate(axis));
      out.count *= extent;
    }
  return out;
}

template <std::size_t rank>
[[nodiscard]] std::vector<std::uint64_t> unsigned_of(const std::array<std::int64_t, rank>& extents) {
  return {extents.begin(), extents.end()};
}

} // namespace detail

/// @brief A copy of this rank's block, in host memory; not collective. Of replicas one rank copies, another
/// one for each name, so that writers share the work.
/// @param name equal on all ranks that hold a block of the tensor
/// @throws Error when memory runs out.
template <class LayoutType, class Element, class Target>
[[nodiscard]] StagedBlock stage(std::string name, const ShardedTensor<LayoutType, Element, Target>& tensor) {
  using Value = std::remove_const_t<Element>;
  static_cast<void>(detail::Savable<LayoutType>());
  const detail::Replica replica = detail::replica_of(tensor.core(), LayoutType::value, LayoutType::axes);
  const bool writes = hash_of(std::string_view(name)).low % replica.count == replica.number;
  StagedBlock out;
  if (writes) {
    out.memory.resize(tensor.local_size() * sizeof(Value));
    shardwright::detail::copy_to_host<Target>(
        tensor.execution(), tensor.data(), reinterpret_cast<Value*>(out.memory.data()), tensor.local_size());
  }
  out.block = {std::move(name),
               safetensors::dtype_of<Value>(),
               detail::unsigned_of(tensor.shape()),
               detail::unsigned_of(tensor.local_offset()),
               detail::unsigned_of(tensor.local_shape()),
               out.memory,
               describe(LayoutType::value, LayoutType::axes)};
  return out;
}

/// @brief Reads this rank's block of a tensor, whatever mesh and layout it was saved in; not collective.
/// @throws DataError where the checkpoint has no such tensor, or it has another shape or element type.
/// @throws LifecycleError while a read-only handle shares the tensor's memory.
template <class LayoutType, class Element, class Target>
void read_tensor(const Reader& reader, const std::string& name,
                 ShardedTensor<LayoutType, Element, Target>& into) {
  static_cast<void>(detail::Savable<LayoutType>());
  const SavedTensor& saved = reader.tensor(name);
  const std::vector<std::uint64_t> shape = detail::unsigned_of(into.shape());
  constexpr safetensors::Dtype dtype = safetensors::dtype_of<Element>();
  if (saved.dtype != dtype || saved.shape != shape)
    throw DataError(
        reader.path().string() + ": tensor " + shardwright::detail::quoted_text(name) + " must be " +
        std::string(safetensors::name_of(dtype)) + " " + safetensors::detail::shape_text(shape) + ", but " +
        std::string(safetensors::name_of(saved.dtype)) + " " + safetensors::detail::shape_text(saved.shape) +
        " was saved (load it into a tensor of that kind, and convert it)");
  std::vector<std::byte> memory(into.local_size() * sizeof(Element));
  reader.read(name, {detail::unsigned_of(into.local_offset()), detail::unsigned_of(into.local_shape())},
              memory);
  shardwright::detail::copy_to_target<Target>(into.execution(),
                                              reinterpret_cast<const Element*>(memory.data()),
                                              into.mutable_data(), into.local_size());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
