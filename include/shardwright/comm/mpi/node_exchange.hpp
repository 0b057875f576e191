// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Memory in which the ranks of a node exchange the entries of agreements.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The entries of the last two agreements of each rank of a node, in each of the first groups.
///
/// A rank fills its entry and then numbers it, and others read it once it has that number. Two entries are
/// enough: a rank cannot be two agreements ahead of another, because it needs the other's entry to complete
/// the one between.
class NodeExchange {
public:
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> agreement; ///< Its number, from 1 on.
    std::array<std::byte, (std::size_t{8} << 10) + 64 - sizeof(std::uint64_t)> content;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static constexpr std::size_t content_bytes = sizeof(Entry::content);
  static constexpr std::size_t most_groups = 64;

  /// Over bytes() of memory that was initially zero, or a null pointer, for the world ranks `here`, which
  /// ascend.
  NodeExchange(void* memory, std::vector<int> here) noexcept
      : groups_(static_cast<Groups*>(memory)), here_(std::move(here)) {}
  [[nodiscard]] static std::size_t bytes(std::size_t ranks_here) noexcept {
    return sizeof(Groups) + sizeof(Entry) * 2 * most_groups * ranks_here;
  }

  /// The two entries of each rank of a group; none if a rank is on another node, too many groups exist, or
  /// there is no memory.
  [[nodiscard]] std::vector<Entry*> entries(std::uint64_t group_id,
                                            const std::vector<int>& world_ranks) const {
    if (groups_ == nullptr)
      return {};
    std::vector<Entry*> out;
    const std::size_t place = place_of(group_id);
    for (const int rank : world_ranks) {
      const auto at = std::lower_bound(here_.begin(), here_.end(), rank);
      if (place == most_groups || at == here_.end() || *at != rank)
        return {};
      const auto local = static_cast<std::size_t>(at - here_.begin());
      out.push_back(reinterpret_cast<Entry*>(groups_ + 1) + 2 * (local * most_groups + place));
    }
    return out;
  }

private:
  struct alignas(64) Groups {
    std::array<std::atomic<std::uint64_t>, most_groups> ids;
  };

  /// Equal on all ranks of a group, whichever asks first; most_groups if all places are taken.
  [[nodiscard]] std::size_t place_of(std::uint64_t group_id) const noexcept {
    std::size_t at = 0;
    for (std::uint64_t found = 0; at < most_groups; ++at, found = 0)
      if (groups_->ids[at].compare_exchange_strong(found, group_id) || found == group_id)
        break;
    return at;
  }

  Groups* groups_; ///< The entries follow.
  std::vector<int> here_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
