// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Loops over the lanes of a warp.

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace ptx {

inline constexpr unsigned warp_lanes = 32;
inline constexpr std::uint32_t all_lanes = ~0U;

/// @brief Calls `call(lane)` for each lane of a mask, from the lowest.
template <class Call> void for_lanes(std::uint32_t lanes, Call call) {
  if (lanes == all_lanes) {
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      call(lane);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1)
    call(static_cast<unsigned>(std::countr_zero(lanes)));
}

/// @brief Sets `row[lane] = value(lane)` for each lane of a mask.
///
/// A full mask takes a loop that compilers turn into vector instructions. Its values go through an array of
/// its own, so that no row can overlap them.
template <class T, class Value> void assign_lanes(T* row, std::uint32_t lanes, Value value) {
  if (lanes == all_lanes) {
    alignas(64) T values[warp_lanes];
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      values[lane] = value(lane);
    std::memcpy(row, values, sizeof values);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    row[lane] = value(lane);
  }
}

/// @brief The lanes of a mask for which `holds(lane)`.
template <class Holds> std::uint32_t lanes_where(std::uint32_t lanes, Holds holds) {
  std::uint32_t result = 0;
  if (lanes == all_lanes) {
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      result |= static_cast<std::uint32_t>(holds(lane)) << lane;
    return result;
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    result |= static_cast<std::uint32_t>(holds(lane)) << lane;
  }
  return result;
}

/// @brief Bits of a mask below a lane, and so on.
inline std::uint32_t bit(unsigned lane) { return std::uint32_t{1} << lane; }

} // namespace ptx
