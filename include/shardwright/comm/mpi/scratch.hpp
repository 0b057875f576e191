// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The scratch that the transfers of one MPI group reuse one after another: memory, and the state of a
/// reduction.

#include <shardwright/comm/reduce.hpp>

#include <cstddef>
#include <memory>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Memory that grows to the largest need. A transfer has two steps under way, and of each a slot to receive
/// from every rank and, where it packs, one to pack for every rank.
class MpiScratch {
public:
  explicit MpiScratch(int ranks) : reduction(ranks), ranks_(static_cast<std::size_t>(ranks)) {}

  NestedReduction reduction;

  /// Gives the slots so many bytes; what they held is lost.
  void reserve(std::size_t slot_bytes, bool receives, bool packs) {
    slot_bytes_ = (slot_bytes + line - 1) / line * line;
    slots_per_step_ = packs ? 2 * ranks_ : ranks_;
    const std::size_t bytes = receives || packs ? 2 * slots_per_step_ * slot_bytes_ : 0;
    if (bytes <= bytes_)
      return;
    memory_.reset(new std::byte[bytes]);
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* received(std::size_t step, int from) const noexcept {
    return memory_.get() + (step % 2 * slots_per_step_ + static_cast<std::size_t>(from)) * slot_bytes_;
  }
  [[nodiscard]] std::byte* packed(std::size_t step, int to) const noexcept {
    return received(step, to) + ranks_ * slot_bytes_;
  }

private:
  static constexpr std::size_t line = 64;

  std::size_t ranks_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::size_t slots_per_step_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
