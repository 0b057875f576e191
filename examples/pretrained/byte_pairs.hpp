// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Byte-pair merges of a word's symbols by rank.

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pretrained {

/// @brief Pairs of tokens to merge, lowest rank first (Sennrich et al., arXiv 1508.07909).
class BytePairs {
public:
  void add(std::int32_t left, std::int32_t right, std::int32_t merged) {
    const auto rank = static_cast<std::int32_t>(merges_.size());
    merges_.emplace(key(left, right), std::pair{rank, merged});
  }

  /// @brief Merges the symbols of a word until no two neighbours can be merged, and appends the result.
  /// Logarithmic per symbol.
  void merge(std::vector<std::int32_t> symbols, std::vector<std::int32_t>& to) const {
    const auto count = static_cast<std::int32_t>(symbols.size());
    std::vector<std::int32_t> next(symbols.size()), before(symbols.size());
    std::priority_queue<Candidate, std::vector<Candidate>, Later> candidates;
    const auto offer = [&](std::int32_t at) {
      if (at < 0 || next[static_cast<std::size_t>(at)] >= count)
        return;
      const auto left = symbols[static_cast<std::size_t>(at)];
      const auto right = symbols[static_cast<std::size_t>(next[static_cast<std::size_t>(at)])];
      if (const auto found = merges_.find(key(left, right)); found != merges_.end())
        candidates.push({found->second.first, at, left, right, found->second.second});
    };
    for (std::int32_t i = 0; i < count; ++i) {
      next[static_cast<std::size_t>(i)] = i + 1;
      before[static_cast<std::size_t>(i)] = i - 1;
    }
    for (std::int32_t i = 0; i < count; ++i)
      offer(i);
    constexpr std::int32_t gone = -1;
    while (!candidates.empty()) {
      const Candidate best = candidates.top();
      candidates.pop();
      const auto at = static_cast<std::size_t>(best.at);
      // A neighbour may have been merged in the meantime.
      if (symbols[at] != best.left || next[at] >= count ||
          symbols[static_cast<std::size_t>(next[at])] != best.right)
        continue;
      const auto removed = static_cast<std::size_t>(next[at]);
      symbols[at] = best.merged;
      symbols[removed] = gone;
      next[at] = next[removed];
      if (next[at] < count)
        before[static_cast<std::size_t>(next[at])] = best.at;
      offer(before[at]);
      offer(best.at);
    }
    for (const std::int32_t symbol : symbols)
      if (symbol != gone)
        to.push_back(symbol);
  }

private:
  struct Candidate {
    std::int32_t rank, at, left, right, merged;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };
  [[nodiscard]] static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  std::unordered_map<std::uint64_t, std::pair<std::int32_t, std::int32_t>> merges_; // rank, merged
};

} // namespace pretrained
