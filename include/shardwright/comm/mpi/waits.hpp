// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The ranks for which each rank of a node waits, as bits in shared memory.

#include <shardwright/core/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The ranks for which each rank waits: in its current call, and in all of its calls in flight.
///
/// What a rank writes belongs to one of its calls, numbered by a version from 1 on; it is replaced word by
/// word, so that a reader never finds a waiting rank without its waits.
class MpiWaits {
public:
  MpiWaits() = default;
  /// Over bytes() of memory that was initially zero.
  MpiWaits(void* memory, int ranks) noexcept : memory_(static_cast<Word*>(memory)), ranks_(ranks) {}
  [[nodiscard]] static std::size_t bytes(int ranks) noexcept {
    return static_cast<std::size_t>(ranks) * MpiWaits(nullptr, ranks).stride() * sizeof(Word);
  }

  void publish(int rank, std::uint64_t version, const std::vector<int>& in_call,
               const std::vector<int>& in_all) noexcept {
    write(bits(rank, false), in_call);
    write(bits(rank, true), in_all);
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
  [[nodiscard]] std::vector<int> of(int rank, bool in_all) const {
    std::vector<int> out;
    const Word* const words = bits(rank, in_all);
    for (int other = 0; other < ranks_; ++other) {
      const auto at = static_cast<std::size_t>(other);
      if ((words[at / 64].load(std::memory_order_relaxed) >> (at % 64) & 1U) != 0)
        out.push_back(other);
    }
    return out;
  }

private:
  using Word = std::atomic<std::uint64_t>;

  [[nodiscard]] std::size_t words() const noexcept { return (static_cast<std::size_t>(ranks_) + 63) / 64; }
  /// Words of a rank: two versions, and two sets of bits.
  [[nodiscard]] std::size_t stride() const noexcept { return 2 + 2 * words(); }
  [[nodiscard]] Word* begin(int rank) const noexcept {
    return memory_ + static_cast<std::size_t>(rank) * stride();
  }
  [[nodiscard]] Word& of_call(int rank) const noexcept { return begin(rank)[0]; }
  [[nodiscard]] Word& of_lost_call(int rank) const noexcept { return begin(rank)[1]; }
  [[nodiscard]] Word* bits(int rank, bool in_all) const noexcept {
    return begin(rank) + 2 + (in_all ? words() : 0);
  }

  void write(Word* to, const std::vector<int>& ranks) const noexcept {
    for (std::size_t word = 0; word < words(); ++word) {
      std::uint64_t all = 0;
      for (const int rank : ranks)
        if (static_cast<std::size_t>(rank) / 64 == word)
          all |= std::uint64_t{1} << (static_cast<std::size_t>(rank) % 64);
      to[word].store(all, std::memory_order_relaxed);
    }
  }

  Word* memory_ = nullptr;
  int ranks_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
