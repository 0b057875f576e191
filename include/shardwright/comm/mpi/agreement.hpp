// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An all-gather of small entries, by which ranks compare their calls and exchange a few numbers.

#include <shardwright/comm/mpi/heads.hpp>
#include <shardwright/comm/mpi/requests.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// An all-gather of small entries (Bruck et al., IEEE TPDS 8(11), 1997); entry i ends up at (own rank + i)
/// mod ranks.
///
/// When it is done, every rank has entered it: it is a barrier too. An entry has a head, of equal length on
/// all ranks, and data of any length up to a limit.
class MpiAgreement {
public:
  /// The most bytes of data with which an entry, head included, is still one eager message.
  [[nodiscard]] static constexpr std::size_t data_bytes(std::size_t head_bytes, int ranks) noexcept {
    int most_entries = 1;
    while (2 * most_entries < ranks)
      most_entries *= 2;
    const std::size_t room = (MpiRequests::eager_bytes - 1) / static_cast<std::size_t>(most_entries);
    const std::size_t taken = sizeof(Length) + head_bytes;
    return room > taken ? (room - taken) / alignment * alignment : 0;
  }

  /// Lets the ranks of a group pass heads through memory that they all share; `place` as in MpiHeads.
  void share_heads(const MpiHeads& heads, std::size_t place) noexcept {
    heads_ = place < MpiHeads::most_groups ? &heads : nullptr;
    place_ = place;
  }

  /// Takes this rank's entry, which is copied. `most_data` bytes, a multiple of 8, are the limit, and equal
  /// on all ranks.
  void start(const void* head, std::size_t head_bytes, const void* data, std::size_t bytes,
             std::size_t most_data, int ranks) {
    head_bytes_ = head_bytes;
    most_ = sizeof(Length) + (head_bytes + alignment - 1) / alignment * alignment + most_data;
    ranks_ = static_cast<std::size_t>(ranks);
    have_ = 0;
    coming_ = 1;
    ++started_;
    if (const std::size_t room = most_ * ranks_ + data_begin(); entries_.size() < room)
      entries_.resize(room);
    ends_.resize(ranks_ + 1);
    const Length length = data_begin() + (bytes + alignment - 1) / alignment * alignment;
    std::memcpy(entries_.data(), &length, sizeof length);
    std::memcpy(entries_.data() + sizeof length, head, head_bytes);
    if (bytes != 0)
      std::memcpy(entries_.data() + data_begin(), data, bytes);
    headless_ = heads_ != nullptr && length > first_part && bytes != 0 && bytes <= short_bytes &&
                most_data >= short_bytes && data_begin() <= MpiHeads::most_bytes;
  }

  /// Advances as far as messages allow. @return whether every entry has arrived.
  [[nodiscard]] bool advance(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    for (;;) {
      if (!requests_.test(site))
        return false;
      if (coming_ == 1 && !complete_single(channel, rank, tag, site))
        return false;
      for (; coming_ > 0; --coming_, ++have_)
        ends_[have_ + 1] = ends_[have_] + length_at(ends_[have_]);
      if (have_ >= ranks_)
        return true;
      post_round(channel, rank, tag, site);
    }
  }

  /// Head of a rank's entry, once all have arrived.
  [[nodiscard]] const std::byte* head(int of_rank, int own_rank) const {
    return entry(of_rank, own_rank) + sizeof(Length);
  }
  template <class Head>
  [[nodiscard]] Head head_as(int of_rank, int own_rank) const {
    Head out;
    std::memcpy(&out, head(of_rank, own_rank), sizeof out);
    return out;
  }
  /// Data of a rank's entry, from a multiple of 8 bytes on.
  [[nodiscard]] const std::byte* data(int of_rank, int own_rank) const {
    return entry(of_rank, own_rank) + data_begin();
  }

  /// Adds the ranks of the group whose entries have not arrived.
  void add_missing(std::vector<bool>& missing) {
    requests_.add_missing(missing);
    second_.add_missing(missing);
  }
  void cancel() noexcept {
    requests_.cancel();
    second_.cancel();
  }

private:
  using Length = std::uint64_t; ///< Of the whole entry; stored before its head.
  static constexpr std::size_t alignment = 8;
  /// Open MPI sends up to this many bytes within the call, and takes twice as long for more.
  static constexpr std::size_t short_bytes = 256;
  /// Two short messages are faster than one of up to twice the length. Entries end at a multiple of 8 bytes,
  /// so a message of this length is a first part, and one of `short_bytes` is data without its head.
  static constexpr std::size_t first_part = short_bytes - 1;

  /// Whether an entry that is sent separately is cut in two; the length at its front tells the receiver.
  [[nodiscard]] static constexpr bool in_two_parts(std::size_t length) noexcept {
    return length > first_part && length <= first_part + short_bytes;
  }

  /// A sum of two ranks modulo their number, without a division.
  [[nodiscard]] std::size_t wrapped(std::size_t sum) const noexcept {
    return sum < ranks_ ? sum : sum - ranks_;
  }
  /// The rank from which the next entries come.
  [[nodiscard]] int ahead(int rank) const noexcept {
    return static_cast<int>(wrapped(static_cast<std::size_t>(rank) + have_));
  }
  /// Sends the entries that have arrived to the rank that lacks them, and receives the same number.
  void post_round(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    constexpr auto ragged = MpiRequests::Mode::ragged;
    const auto to = static_cast<int>(wrapped(static_cast<std::size_t>(rank) + ranks_ - have_));
    coming_ = std::min(have_, ranks_ - have_);
    const bool headless = coming_ == 1 && headless_;
    const std::size_t skipped = headless ? data_begin() : 0;
    requests_.receive(channel, entries_.data() + ends_[have_] + skipped, coming_ * most_, ahead(rank), tag,
                      site, ragged);
    if (headless)
      return send_headless(channel, to, tag, site);
    const std::size_t bytes = ends_[coming_];
    const bool parted = coming_ == 1 && in_two_parts(bytes);
    // Entries of ranks that agree have the same length, and a message that finds its receive posted is not
    // copied twice.
    if (parted)
      receive_second_part(channel, rank, tag, site);
    const std::size_t at_once = parted ? first_part : bytes;
    requests_.send(channel, entries_.data(), at_once, to, tag, site, ragged);
    if (parted)
      requests_.send(channel, entries_.data() + at_once, bytes - at_once, to, tag, site, ragged);
  }

  void send_headless(const MpiChannel& channel, int to, int tag, const MpiCallSite& site) {
    heads_->write(site.world_rank, place_, started_, entries_.data(), data_begin());
    requests_.send(channel, entries_.data() + data_begin(), short_bytes, to, tag, site,
                   MpiRequests::Mode::ragged);
  }
  /// Into separate memory: the first part may turn out to be the whole entry, and longer.
  void receive_second_part(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    second_.receive(channel, second_part_.data(), second_part_.size(), ahead(rank), tag, site,
                    MpiRequests::Mode::ragged);
  }

  /// Completes the single incoming entry, whose first message has arrived. @return whether it is complete.
  [[nodiscard]] bool complete_single(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    if (have_ == 0)
      return true; // its own
    // The bytes at the front are a length only if the message begins with its head, and differing calls may
    // disagree on that.
    const bool whole = !headless_ && !in_two_parts(length_at(ends_[have_]));
    const std::size_t arrived = whole ? 0 : requests_.received_bytes();
    std::byte* const entry = entries_.data() + ends_[have_];
    if (headless_ && arrived != short_bytes) {
      std::memmove(entry, entry + data_begin(), arrived); // of a call that differs: its head is enough
      return true;
    }
    if (arrived == first_part)
      return take_second_part(channel, rank, tag, site);
    if (!second_.empty())
      second_.cancel();
    if (arrived == short_bytes) {
      heads_->read(channel.world_ranks[static_cast<std::size_t>(ahead(rank))], place_, started_, entry,
                   data_begin());
      heads_->prepare(site.world_rank, place_, started_ + 1);
    }
    return true;
  }
  [[nodiscard]] bool take_second_part(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    if (second_.empty())
      receive_second_part(channel, rank, tag, site);
    if (!second_.test(site))
      return false;
    std::memcpy(entries_.data() + ends_[have_] + first_part, second_part_.data(),
                length_at(ends_[have_]) - first_part);
    return true;
  }

  [[nodiscard]] std::size_t data_begin() const noexcept {
    return sizeof(Length) + (head_bytes_ + alignment - 1) / alignment * alignment;
  }
  [[nodiscard]] const std::byte* entry(int of_rank, int own_rank) const {
    const auto behind = ranks_ - static_cast<std::size_t>(own_rank);
    return entries_.data() + ends_[wrapped(static_cast<std::size_t>(of_rank) + behind)];
  }
  [[nodiscard]] std::size_t length_at(std::size_t begin) const noexcept {
    Length length = 0;
    std::memcpy(&length, entries_.data() + begin, sizeof length);
    return std::clamp<std::size_t>(length, data_begin(), most_);
  }

  std::vector<std::byte> entries_; ///< Contiguous, one after another.
  std::vector<std::size_t> ends_;  ///< A zero, then the end of each entry.
  std::size_t head_bytes_ = 0;
  std::size_t most_ = 0; ///< Bytes of the longest entry.
  std::size_t ranks_ = 0;
  std::size_t have_ = 0;
  std::size_t coming_ = 0;
  bool headless_ = false; ///< Whether this rank's data is sent without its head, which is in shared memory.
  const MpiHeads* heads_ = nullptr; ///< Null if the ranks share no memory, or there are too many groups.
  std::size_t place_ = 0;
  std::uint64_t started_ = 0; ///< Agreements so far, the same number on all ranks.
  MpiRequests requests_;
  MpiRequests second_; ///< The receive of the second part of a single entry.
  std::array<std::byte, short_bytes> second_part_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
