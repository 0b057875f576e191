// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The collectives that transitions of a mesh made before, ready to be issued again.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The one collective of a transition for tensors of one shape; buffers, element and location vary.
struct PreparedCall {
  const void* step = nullptr; ///< The transition's only step on the mesh; null for an empty place.
  std::array<std::int64_t, max_tensor_rank> shape{};
  unsigned mask = 0; ///< Axes of its group.
  CollectiveCall call{};
  std::vector<StridedBlock> blocks{}; ///< What the call refers to.
};

/// Calls by step and shape, the newer of two that fall into one place. A hit makes a transition of a small
/// tensor cost a few nanoseconds beside its collective.
class PreparedCalls {
public:
  /// The place of a call, which holds it if `step` and `shape` agree.
  [[nodiscard]] PreparedCall& place(const void* step,
                                    const std::array<std::int64_t, max_tensor_rank>& shape) {
    if (calls_.empty())
      calls_.resize(places);
    auto hash = reinterpret_cast<std::uintptr_t>(step);
    for (const std::int64_t extent : shape)
      hash = hash * 31 + static_cast<std::uintptr_t>(extent);
    return calls_[(hash * 0x9e3779b97f4a7c15u) >> (64 - place_bits)];
  }

private:
  static constexpr int place_bits = 7;
  static constexpr std::size_t places = std::size_t{1} << place_bits;
  static_assert(sizeof(std::uintptr_t) == 8);

  std::vector<PreparedCall> calls_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
