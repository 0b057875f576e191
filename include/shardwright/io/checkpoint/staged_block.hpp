// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies a rank's block of a tensor to save it, and reads one on any mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/block.hpp>
#include <shardwright/io/checkpoint/real_elements.hpp>
#include <shardwright/io/large_file.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
#include <shardwright/io/checkpoint/block_hash.hpp>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

/// Memory from the beginning of a page on, which a LargeFile writes without a copy.
template <class Element> struct PageAllocator {
  using value_type = Element;
  static constexpr std::align_val_t page{shardwright::detail::LargeFile::page};

  PageAllocator() = default;
  template <class Other> constexpr PageAllocator(const PageAllocator<Other>&) noexcept {}

  [[nodiscard]] Element* allocate(std::size_t count) {
    return static_cast<Element*>(::operator new(count * sizeof(Element), page));
  }
  void deallocate(Element* at, std::size_t) noexcept { ::operator delete(at, page); }

  friend constexpr bool operator==(const PageAllocator&, const PageAllocator&) noexcept { return true; }
};

} // namespace detail

/// @brief A copy of a rank's block of a tensor, which later changes to the tensor do not affect.
struct StagedBlock {
  Block block; ///< Its bytes are those of `memory`; none on a rank that leaves the block to another.
  std::vector<std::byte, detail::PageAllocator<std::byte>> memory;
};

/// @brief A rank's position among those that hold the same block.
struct Replica {
  std::uint64_t number = 0;
  std::uint64_t count = 1;

  /// @brief Joins the place within a mesh with that among several meshes.
  friend constexpr Replica operator*(const Replica& inner, const Replica& outer) {
    return {outer.number * inner.count + inner.number, inner.count * outer.count};
  }
};

namespace detail {

template <class LayoutType> struct Savable {
  static_assert(!LayoutType::value.has_halos(),
                "checkpoint: a tensor must have no halos (redistribute it to the layout without them)");
  static_assert(!LayoutType::value.has_partial(),
                "checkpoint: a tensor must not be Partial, an incomplete sum (redistribute it first)");
};

/// The index of a rank's replica of its block, and the number of replicas, which are on ranks that differ
/// only along axes that shard nothing.
[[nodiscard]] Replica replica_of(const shardwright::detail::MeshCore& core, const LayoutValue& layout,
                                 std::span<const std::string_view> axes);

[[nodiscard]] inline std::vector<std::uint64_t> unsigned_of(std::span<const std::int64_t> extents) {
  return {extents.begin(), extents.end()};
}

/// A tensor and this rank's block of it, whatever the layout.
struct TensorPlace {
  const shardwright::detail::MeshCore& core;
  const LayoutValue& layout;
  std::span<const std::string_view> axes;
  std::span<const std::int64_t> shape;

  template <class LayoutType, class Element, class Target>
  [[nodiscard]] static TensorPlace of(const ShardedTensor<LayoutType, Element, Target>& tensor) {
    static_cast<void>(Savable<LayoutType>());
    return {tensor.core(), LayoutType::value, LayoutType::axes, tensor.shape()};
  }
  [[nodiscard]] safetensors::BlockOf block() const;
};

/// Reads a block in the caller's element type. Compiled for each of those, not for each layout.
template <class Element, class Target>
[[gnu::noinline]] void
read_block(const BlockSource& source, const std::string& name, const TensorPlace& place, bool convert,
           const typename Target::execution_space& execution, Element* into, std::size_t elements) {
  constexpr safetensors::Dtype wanted = safetensors::dtype_of<Element>();
  const safetensors::Dtype saved = source.require(name, wanted, unsigned_of(place.shape), convert);
  if (Target::host_accessible && saved == wanted)
    return source.read(name, place.block(), std::as_writable_bytes(std::span(into, elements)));
  std::vector<std::byte> memory(elements * (safetensors::bits_of(saved) / 8));
  source.read(name, place.block(), memory);
  if constexpr (detail::RealElement<Element>)
    if (saved != wanted)
      memory = detail::converted<Element>(saved, memory);
  shardwright::detail::copy_to_target<Target>(execution, reinterpret_cast<const Element*>(memory.data()),
                                              into, elements);
}

#if defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
extern template void read_block<float, DefaultTarget>(const BlockSource&, const std::string&,
                                                      const TensorPlace&, bool,
                                                      const DefaultTarget::execution_space&, float*,
                                                      std::size_t);
extern template void read_block<double, DefaultTarget>(const BlockSource&, const std::string&,
                                                       const TensorPlace&, bool,
                                                       const DefaultTarget::execution_space&, double*,
                                                       std::size_t);
extern template void read_block<bfloat16, DefaultTarget>(const BlockSource&, const std::string&,
                                                         const TensorPlace&, bool,
                                                         const DefaultTarget::execution_space&, bfloat16*,
                                                         std::size_t);
#endif

} // namespace detail

/// @brief Copies of a rank's blocks in host memory that is allocated once: each save reuses the memory of the
/// one before.
class Staging {
public:
  /// @brief Removes all blocks; the memory stays.
  void clear() noexcept { used_ = 0; }

  /// @brief Copies this rank's block; not collective. Of the ranks that hold the same block only one copies
  /// it, a different one for each name, so that they share the work.
  /// @param name equal on all ranks that hold a block of the tensor
  /// @param meshes this rank's place among several meshes that hold the same tensor
  template <class LayoutType, class Element, class Target>
  void add(std::string name, const ShardedTensor<LayoutType, Element, Target>& tensor,
           const Replica& meshes = {}) {
    using Value = std::remove_const_t<Element>;
    std::byte* const to =
        next(std::move(name), safetensors::dtype_of<Value>(), detail::TensorPlace::of(tensor), meshes);
    if (to != nullptr)
      shardwright::detail::copy_to_host<Target>(tensor.execution(), tensor.data(),
                                                reinterpret_cast<Value*>(to), tensor.local_size());
  }
  /// @brief Copies numbers that are the same on all replicas, as a vector of F64.
  void add(std::string name, const std::vector<double>& values, const Replica& replica);

  /// @brief The blocks added since clear().
  [[nodiscard]] std::span<const StagedBlock> blocks() const noexcept {
    return std::span(blocks_).first(used_);
  }
  /// @brief Bytes that this rank has copied since clear().
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t out = 0;
    for (const StagedBlock& each : blocks())
      out += each.memory.size();
    return out;
  }

private:
  /// The memory of the next block, of a tensor of any layout; null if another replica writes it.
  [[nodiscard]] std::byte* next(std::string name, safetensors::Dtype dtype, const detail::TensorPlace& tensor,
                                const Replica& meshes);
  [[nodiscard]] std::byte* next(Block block, const Replica& replica);

  std::vector<StagedBlock> blocks_;
  std::size_t used_ = 0;
};

/// @brief A copy of this rank's block of one tensor; see Staging.
/// @throws Error when memory runs out.
template <class LayoutType, class Element, class Target>
[[nodiscard]] StagedBlock stage(std::string name, const ShardedTensor<LayoutType, Element, Target>& tensor) {
  Staging one;
  one.add(std::move(name), tensor);
  StagedBlock out = one.blocks().front();
  out.block.bytes = out.memory;
  return out;
}

/// @brief Reads this rank's block of a tensor, whatever mesh and layout it was saved in; not collective.
/// @param convert whether another floating-point type may have been saved: values are then rounded to the
/// nearest
/// @throws DataError if the checkpoint has no such tensor, or it has another shape or element type.
/// @throws LifecycleError while a read-only handle shares the tensor's memory.
template <class LayoutType, class Element, class Target>
void read_tensor(const BlockSource& source, const std::string& name,
                 ShardedTensor<LayoutType, Element, Target>& into, bool convert = false) {
  detail::read_block<Element, Target>(source, name, detail::TensorPlace::of(into), convert, into.execution(),
                                      into.mutable_data(), into.local_size());
}

#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
namespace detail {

SHARDWRIGHT_INLINE Replica replica_of(const shardwright::detail::MeshCore& core, const LayoutValue& layout,
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

SHARDWRIGHT_INLINE safetensors::BlockOf TensorPlace::block() const {
  const shardwright::detail::AxisBinding binding = shardwright::detail::bind_axes(core, axes);
  safetensors::BlockOf out;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const DimensionBlock block = shardwright::detail::block_at(layout, d, binding, shape[d]);
    out.offset.push_back(static_cast<std::uint64_t>(block.offset));
    out.extent.push_back(static_cast<std::uint64_t>(block.size));
  }
  return out;
}

} // namespace detail

SHARDWRIGHT_INLINE void Staging::add(std::string name, const std::vector<double>& values,
                                     const Replica& replica) {
  std::byte* const to =
      next({std::move(name), safetensors::Dtype::f64, {values.size()}, {0}, {values.size()}, {}, "Layout<1>"},
           replica);
  if (to != nullptr && !values.empty())
    std::memcpy(to, values.data(), values.size() * sizeof(double));
}

SHARDWRIGHT_INLINE std::byte* Staging::next(std::string name, safetensors::Dtype dtype,
                                            const detail::TensorPlace& tensor, const Replica& meshes) {
  safetensors::BlockOf block = tensor.block();
  return next({std::move(name),
               dtype,
               detail::unsigned_of(tensor.shape),
               std::move(block.offset),
               std::move(block.extent),
               {},
               describe(tensor.layout, tensor.axes)},
              detail::replica_of(tensor.core, tensor.layout, tensor.axes) * meshes);
}

SHARDWRIGHT_INLINE std::byte* Staging::next(Block block, const Replica& replica) {
  if (used_ == blocks_.size())
    blocks_.emplace_back();
  StagedBlock& out = blocks_[used_++];
  // The writer varies by name, to share the work.
  const bool writes = hash_of(block.tensor).low % replica.count == replica.number;
  std::size_t bytes = safetensors::bits_of(block.dtype) / 8;
  for (const std::uint64_t extent : block.extent)
    bytes *= static_cast<std::size_t>(extent);
  out.memory.resize(writes ? bytes : 0);
  out.block = std::move(block);
  out.block.bytes = out.memory;
  return writes ? out.memory.data() : nullptr;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
