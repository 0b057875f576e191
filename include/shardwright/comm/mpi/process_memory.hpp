// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads the memory of another process of this machine.

#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/core/strided_block.hpp>

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Some rows of a block of bytes, for the system.
class MemorySlices {
public:
  /// The slices of `bytes` bytes from byte `begin` on: as many as fit.
  MemorySlices(std::byte* base, const StridedBlock& block, std::size_t begin, std::size_t bytes) noexcept {
    StridedCursor at(block, begin);
    for (; bytes_ < bytes && count_ < most; ++count_) {
      const std::size_t length = std::min(bytes - bytes_, at.left());
      slices_[count_] = {base + at.position(), length};
      at.advance(length);
      bytes_ += length;
    }
  }
  [[nodiscard]] const iovec* data() const noexcept { return slices_.data(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
  static constexpr std::size_t most = 128;

  std::array<iovec, most> slices_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

/// Copies bytes of a block of another process, from byte `begin` on, to a block of this process, which they
/// fill, whatever the strides. The process must let this one do so: it does if it has the same user, and
/// neither the system's settings nor a container's prevent it.
/// @return zero, or the number of an error: ESRCH if the process is gone.
[[nodiscard]] inline int read_memory(int process, std::uint64_t base, const StridedBlock& block,
                                     std::size_t begin, std::byte* to,
                                     const StridedBlock& to_block) noexcept {
  for (std::size_t done = 0; done < to_block.count();) {
    const MemorySlices own(to, to_block, done, to_block.count() - done);
    // No more than that: the system would lock pages of all of theirs.
    const MemorySlices theirs(reinterpret_cast<std::byte*>(base), block, begin + done, own.bytes());
    const ssize_t bytes =
        ::process_vm_readv(process, own.data(), own.count(), theirs.data(), theirs.count(), 0);
    if (bytes <= 0)
      return bytes < 0 ? errno : EFAULT;
    done += static_cast<std::size_t>(bytes);
  }
  return 0;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
