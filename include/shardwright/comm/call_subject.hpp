// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The tensor that a call moves, so that differing shapes are detected even if the counts agree.

#include <shardwright/core/config.hpp>
#include <shardwright/core/hash.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The global shape of the tensor that a call moves, or from which it was reduced; or none.
struct SubjectShape {
  static constexpr int most_dimensions = 6;

  std::array<std::int64_t, most_dimensions> extents{};
  int dimensions = -1; ///< -1: of no tensor.

  [[nodiscard]] static SubjectShape of(std::span<const std::int64_t> shape) noexcept {
    SubjectShape out;
    std::copy(shape.begin(), shape.end(), out.extents.begin());
    out.dimensions = static_cast<int>(shape.size());
    return out;
  }
  [[nodiscard]] constexpr bool known() const noexcept { return dimensions >= 0; }
  /// "[12, 8]".
  [[nodiscard]] std::string text() const {
    std::string out;
    for (int d = 0; d < dimensions; ++d)
      out += (d == 0 ? "" : ", ") + std::to_string(extents[static_cast<std::size_t>(d)]);
    return "[" + out + "]";
  }
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept {
    std::uint64_t out = static_cast<std::uint64_t>(dimensions + 1);
    for (int d = 0; d < dimensions; ++d)
      out = mixed(out, static_cast<std::uint64_t>(extents[static_cast<std::size_t>(d)]));
    return out;
  }
  friend constexpr bool operator==(const SubjectShape&, const SubjectShape&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
