// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Heads of agreements in shared memory, for data that leave no room for them in a message.

#include <shardwright/core/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The heads of the last two agreements of each rank of a node, in each of the first groups.
///
/// A rank writes the head of its entry before it sends the data of that entry, and others read it after the
/// data have arrived. Two are enough: a rank cannot be two agreements ahead of another, because it needs the
/// other's entry to complete the one between.
class MpiHeads {
public:
  static constexpr std::size_t most_bytes = 32;
  static constexpr std::size_t most_groups = 64;

  MpiHeads() = default;
  /// Over bytes() of memory that was initially zero.
  explicit MpiHeads(void* memory) noexcept : groups_(static_cast<Word*>(memory)) {}
  [[nodiscard]] static std::size_t bytes(int ranks) noexcept {
    return sizeof(Word) * most_groups * (1 + static_cast<std::size_t>(ranks) * words_per_group);
  }

  /// Place of a group, equal on all of its ranks, whichever asks first; most_groups if all are taken.
  [[nodiscard]] std::size_t place(std::uint64_t group_id) const noexcept {
    std::size_t at = 0;
    for (std::uint64_t found = 0; at < most_groups; ++at, found = 0)
      if (groups_[at].compare_exchange_strong(found, group_id) || found == group_id)
        break;
    return at;
  }

  void write(int rank, std::size_t place, std::uint64_t agreement, const std::byte* head,
             std::size_t bytes) const noexcept {
    Words words{};
    std::memcpy(words.data(), head, bytes);
    Word* const to = begin(rank, place, agreement);
    for (std::size_t i = 0; i < words.size(); ++i)
      to[i].store(words[i], std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  /// Fetches the memory of the next agreement's head, so that write() need not wait for its last reader's
  /// core to release it.
  void prepare(int rank, std::size_t place, std::uint64_t agreement) const noexcept {
    __builtin_prefetch(begin(rank, place, agreement), 1);
  }
  void read(int rank, std::size_t place, std::uint64_t agreement, std::byte* head,
            std::size_t bytes) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    Words words{};
    const Word* const from = begin(rank, place, agreement);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = from[i].load(std::memory_order_relaxed);
    std::memcpy(head, words.data(), bytes);
  }

private:
  using Word = std::atomic<std::uint64_t>;
  using Words = std::array<std::uint64_t, most_bytes / 8>;
  /// Two cache lines: one is written while the other may still be read.
  static constexpr std::size_t words_per_group = 16;

  [[nodiscard]] Word* begin(int rank, std::size_t place, std::uint64_t agreement) const noexcept {
    const std::size_t group = static_cast<std::size_t>(rank) * most_groups + place;
    return groups_ + most_groups + group * words_per_group + agreement % 2 * (words_per_group / 2);
  }

  Word* groups_ = nullptr; ///< The ids of the groups, and then the heads.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
