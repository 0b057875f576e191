// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The ranks that hold another value than most, and their names in a message.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "rank 3" or "ranks 1, 4 and 5".
inline std::string rank_list(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return out;
}

/// The value that most ranks hold; among equally many, the one of the lowest rank.
inline std::uint64_t majority(const std::vector<std::uint64_t>& values) {
  std::uint64_t best = values.front();
  std::ptrdiff_t votes = 0;
  for (const std::uint64_t value : values) {
    const std::ptrdiff_t count = std::count(values.begin(), values.end(), value);
    if (count > votes) {
      best = value;
      votes = count;
    }
  }
  return best;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
