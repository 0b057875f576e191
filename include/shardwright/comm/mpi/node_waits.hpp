// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The ranks for which each rank of a node waits, and their answers, in shared memory.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The ranks for which each rank waits, in its current call and in all of its calls in flight, and the
/// answers of those that wait themselves.
///
/// What a rank writes belongs to one of its calls, numbered by a version from 1 on; it is replaced word by
/// word, so that a reader never finds a waiting rank without its waits.
class NodeWaits {
public:
  /// Over bytes() of memory that was initially zero, for the world ranks `here`, which ascend.
  NodeWaits(void* memory, int ranks, std::vector<int> here) noexcept
      : memory_(static_cast<Word*>(memory)), ranks_(ranks), here_(std::move(here)) {}
  [[nodiscard]] static std::size_t bytes(int ranks, std::size_t ranks_here) noexcept {
    return (static_cast<std::size_t>(ranks) * stride(ranks) + ranks_here * ranks_here) * sizeof(Word);
  }
  /// The world ranks of this node, and whether a rank is one of them.
  [[nodiscard]] const std::vector<int>& here() const noexcept { return here_; }
  [[nodiscard]] bool covers(int rank) const noexcept {
    return std::binary_search(here_.begin(), here_.end(), rank);
  }

  void publish(int rank, std::uint64_t version, const std::vector<int>& in_call,
               const std::vector<int>& in_flight) noexcept {
    write(bits(rank, false), in_call);
    write(bits(rank, true), in_flight);
    of_call(rank).store(version, std::memory_order_release);
  }
  /// Records that a rank leaves a call because others did not arrive.
  void give_up(int rank, std::uint64_t version) noexcept {
    of_lost_call(rank).store(version, std::memory_order_release);
  }
  [[nodiscard]] bool gave_up(int rank, std::uint64_t version) const noexcept {
    return version != 0 && of_lost_call(rank).load(std::memory_order_acquire) == version;
  }
  /// Whether a rank waits for others in a call, or did so until it gave up.
  [[nodiscard]] bool holds(int rank, std::uint64_t version) const noexcept {
    return gave_up(rank, version) ||
           (version != 0 && of_call(rank).load(std::memory_order_acquire) == version);
  }
  /// Whether a rank waits for another in its call.
  [[nodiscard]] bool awaits(int rank, int other) const noexcept { return has(bits(rank, false), other); }
  [[nodiscard]] std::vector<int> of(int rank, bool in_flight) const {
    std::vector<int> out;
    for (int other = 0; other < ranks_; ++other)
      if (has(bits(rank, in_flight), other))
        out.push_back(other);
    return out;
  }

  /// Records whether a rank, inside a call of the version `own`, has yet to begin what the call of the
  /// version `version` of another rank needs of it.
  void answer(int rank, std::uint32_t own, int other, std::uint32_t version, bool lacks) noexcept {
    said_by(rank, other).store(lacks ? both(own, version) : 0, std::memory_order_release);
  }
  /// A rank leaves its call in another way than by its end or a deadline: it may begin something.
  void withdraw_answers(int rank) noexcept {
    for (const int other : here_)
      said_by(rank, other).store(0, std::memory_order_release);
  }
  /// Whether it has said so of these two calls.
  [[nodiscard]] bool lacks(int rank, std::uint32_t own, int other, std::uint32_t version) const noexcept {
    return said_by(rank, other).load(std::memory_order_acquire) == both(own, version);
  }

private:
  using Word = std::atomic<std::uint64_t>;

  [[nodiscard]] static std::size_t words(int ranks) noexcept {
    return (static_cast<std::size_t>(ranks) + 63) / 64;
  }
  /// Words of a rank: two versions, and two sets of bits.
  [[nodiscard]] static std::size_t stride(int ranks) noexcept { return 2 + 2 * words(ranks); }
  [[nodiscard]] Word* begin(int rank) const noexcept {
    return memory_ + static_cast<std::size_t>(rank) * stride(ranks_);
  }
  [[nodiscard]] Word& of_call(int rank) const noexcept { return begin(rank)[0]; }
  [[nodiscard]] Word& of_lost_call(int rank) const noexcept { return begin(rank)[1]; }
  [[nodiscard]] Word* bits(int rank, bool in_flight) const noexcept {
    return begin(rank) + 2 + (in_flight ? words(ranks_) : 0);
  }
  [[nodiscard]] static bool has(const Word* from, int rank) noexcept {
    const auto at = static_cast<std::size_t>(rank);
    return (from[at / 64].load(std::memory_order_acquire) >> (at % 64) & 1U) != 0;
  }
  void write(Word* to, const std::vector<int>& ranks) const noexcept {
    for (std::size_t word = 0; word < words(ranks_); ++word) {
      std::uint64_t all = 0;
      for (const int rank : ranks)
        if (static_cast<std::size_t>(rank) / 64 == word)
          all |= std::uint64_t{1} << (static_cast<std::size_t>(rank) % 64);
      to[word].store(all, std::memory_order_release);
    }
  }

  [[nodiscard]] static std::uint64_t both(std::uint32_t own, std::uint32_t other) noexcept {
    return std::uint64_t{own} << 32U | other;
  }
  [[nodiscard]] Word& said_by(int rank, int other) const noexcept {
    return begin(ranks_)[place(rank) * here_.size() + place(other)];
  }
  [[nodiscard]] std::size_t place(int rank) const noexcept {
    return static_cast<std::size_t>(std::lower_bound(here_.begin(), here_.end(), rank) - here_.begin());
  }

  Word* memory_;
  int ranks_;
  std::vector<int> here_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
