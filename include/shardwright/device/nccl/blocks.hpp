// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Packs and unpacks strided blocks of device memory, with reusable memory for them.

#include <shardwright/core/strided_block.hpp>
#include <shardwright/device/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Whether every block is contiguous.
[[nodiscard]] inline bool all_contiguous(std::span<const StridedBlock> blocks) noexcept {
  return std::all_of(blocks.begin(), blocks.end(), [](const auto& block) { return block.contiguous(); });
}

/// Copies blocks between a strided buffer and a packed buffer, in order: one launch for every 53 blocks, with
/// the widest access that their alignment allows.
template <class Runtime> class BlockCopies {
public:
  BlockCopies(Runtime& runtime, typename Runtime::Stream& stream) : runtime_(runtime), stream_(stream) {}

  void pack(const void* strided, void* packed, std::span<const StridedBlock> blocks,
            std::size_t element_bytes) {
    copy(const_cast<void*>(strided), packed, blocks, element_bytes, true);
  }
  void unpack(const void* packed, void* strided, std::span<const StridedBlock> blocks,
              std::size_t element_bytes) {
    copy(strided, const_cast<void*>(packed), blocks, element_bytes, false);
  }

private:
  static constexpr unsigned entries_per_block = 3;
  static constexpr unsigned most_blocks = PeerWork::inline_entries / entries_per_block;

  void copy(void* strided, void* packed, std::span<const StridedBlock> blocks, std::size_t element_bytes,
            bool packs) {
    std::uint64_t bits = reinterpret_cast<std::uintptr_t>(strided) | reinterpret_cast<std::uintptr_t>(packed);
    for (const StridedBlock& block : blocks)
      if (block.count() > 0)
        bits |= element_bytes * (block.offset | block.row_length | (block.rows > 1 ? block.row_stride : 0));
    with_vector_bytes(bits, [&]<unsigned vector_bytes>() {
      by_vectors<vector_bytes>(strided, packed, blocks, element_bytes, packs);
    });
  }

  template <unsigned vector_bytes>
  void by_vectors(void* strided, void* packed, std::span<const StridedBlock> blocks,
                  std::size_t element_bytes, bool packs) {
    using Kernel = PeerCopyKernel<vector_bytes>;
    constexpr std::uint64_t tile_bytes = std::uint64_t{Kernel::unroll} * peer_lanes * vector_bytes;
    Kernel kernel{};
    kernel.work.ins = 1;
    kernel.work.outs = 1;
    std::uint64_t tiles = 0;
    const auto flush = [&] {
      if (kernel.work.blocks > 0)
        runtime_.launch(stream_, kernel, kernel.work.blocks, tiles);
      kernel.work.blocks = 0;
      tiles = 0;
    };
    auto* run = static_cast<std::byte*>(packed);
    for (const StridedBlock& block : blocks) {
      const std::uint64_t bytes = block.count() * element_bytes;
      if (bytes == 0)
        continue;
      if (kernel.work.blocks == most_blocks)
        flush();
      PeerEntry* const entry = kernel.work.entries + std::size_t{kernel.work.blocks++} * entries_per_block;
      entry[0].row_length = bytes;
      PeerEntry& place = entry[packs ? 1 : 2];
      place.data = static_cast<std::byte*>(strided) + block.offset * element_bytes;
      if (!block.contiguous()) {
        place.row_length = block.row_length * element_bytes / vector_bytes;
        place.row_stride = block.row_stride * element_bytes / vector_bytes;
      }
      entry[packs ? 2 : 1].data = run;
      run += bytes;
      tiles = std::max(tiles, (bytes + tile_bytes - 1) / tile_bytes);
    }
    flush();
  }

  Runtime& runtime_;
  typename Runtime::Stream& stream_;
};

/// Device memory that grows on demand and is never shrunk. It is replaced in the order of the stream that
/// uses it, because earlier kernels may still use the old memory, and the host must not wait for kernels that
/// wait for others.
template <class Runtime> class DeviceScratch {
public:
  explicit DeviceScratch(Runtime& runtime) : runtime_(runtime) {}

  /// @param stream of the work that uses it; all earlier uses precede that work
  [[nodiscard]] std::byte* of(std::size_t bytes, typename Runtime::Stream& stream) {
    if (memory_)
      memory_->follow(stream); // the stream that it was made on does not wait for the others
    const std::size_t known = memory_ ? memory_->bytes() : 0;
    if (!memory_ || known < bytes) {
      memory_.reset();
      memory_.emplace(runtime_.make_memory(stream, std::max({bytes, known + known / 2, std::size_t{256}})));
    }
    return memory_->data();
  }

private:
  Runtime& runtime_;
  std::optional<typename Runtime::Memory> memory_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
