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
  /// The slices from byte `begin` on: as many as fit.
  MemorySlices(std::byte* base, const StridedBlock& block, std::size_t begin) noexcept {
    StridedCursor at(block, begin);
    for (std::size_t left = block.count() - begin; left > 0 && count_ < most; ++count_) {
      const std::size_t length = std::min(left, at.left());
      slices_[count_] = {base + at.position(), length};
      at.advance(length);
      left -= length;
    }
  }
  [[nodiscard]] const iovec* data() const noexcept { return slices_.data(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

private:
  static constexpr std::size_t most = 128;

  std::array<iovec, most> slices_;
  std::size_t count_ = 0;
};

/// Copies a block of bytes of another process to one of this process with equally many, whatever their
/// strides. The process must let this one do so: it does if it has the same user, and neither the system's
/// settings nor a container's prevent it.
/// @return zero, or the number of an error: ESRCH if the process is gone.
[[nodiscard]] inline int read_memory(int process, std::uint64_t base, const StridedBlock& block,
                                     std::byte* to, const StridedBlock& to_block) noexcept {
  for (std::size_t done = 0; done < to_block.count();) {
    const MemorySlices theirs(reinterpret_cast<std::byte*>(base), block, done);
    const MemorySlices own(to, to_block, done);
    const ssize_t bytes =
        ::process_vm_readv(process, own.data(), own.count(), theirs.data(), theirs.count(), 0);
    if (bytes <= 0)
      return bytes < 0 ? errno : EFAULT;
    done += static_cast<std::size_t>(bytes);
  }
  return 0;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
