// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The progress of a save and its result, in bytes and their rate.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

[[nodiscard]] inline double rate(std::uint64_t bytes, double seconds) noexcept {
  return static_cast<double>(bytes) / std::max(seconds, 1e-9);
}

} // namespace detail

/// @brief A checkpoint that is durable.
struct SaveReport {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0; ///< On rank 0 those of all parts, on any other rank those of its part.
  double seconds = 0;      ///< From its start, after the copy, until the ranks knew that it is durable.

  /// @brief Its rate.
  [[nodiscard]] double bytes_per_second() const noexcept { return detail::rate(bytes, seconds); }
};

/// @brief The progress of a save.
struct SaveProgress {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0; ///< Of blocks, written so far by all ranks.
  std::uint64_t total = 0; ///< Of all blocks; once these are written, the manifest remains.
  double seconds = 0;      ///< Since its start, after the copy.

  /// @brief The mean rate since the start.
  [[nodiscard]] double bytes_per_second() const noexcept { return detail::rate(bytes, seconds); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
