// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An all-gather of small entries, by which ranks compare their calls and exchange a few numbers.

#include <shardwright/comm/mpi/node_exchange.hpp>
#include <shardwright/comm/mpi/requests.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// An all-gather of small entries, in memory if the ranks share some, and otherwise by messages (Bruck et
/// al., IEEE TPDS 8(11), 1997).
///
/// When it is done, every rank has entered it: it is a barrier too. An entry has a head, of equal length on
/// all ranks, and data of any length up to a limit.
class MpiAgreement {
public:
  /// Of one rank of a group; `shared` as from NodeExchange.
  MpiAgreement(int rank, int ranks, std::vector<NodeExchange::Entry*> shared)
      : shared_(std::move(shared)), rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)) {}

  /// The most bytes of data that should accompany a head: with more, a message would not be eager, or a
  /// reduction in one round not be the fastest.
  [[nodiscard]] std::size_t data_bytes(std::size_t head_bytes) const noexcept {
    std::size_t most_entries = 1;
    while (2 * most_entries < ranks_)
      most_entries *= 2;
    const std::size_t message = (MpiRequests::eager_bytes - 1) / most_entries;
    const std::size_t taken = sizeof(Length) + padded(head_bytes);
    const std::size_t most = shared_.empty() ? message - std::min(message, taken)
                                             : std::min(MpiRequests::one_round_bytes / ranks_,
                                                        NodeExchange::content_bytes - padded(head_bytes));
    return most / alignment * alignment;
  }

  /// Takes this rank's entry, which is copied. `most_data` bytes, a multiple of 8, are the limit, and equal
  /// on all ranks.
  void start(const void* head, std::size_t head_bytes, const void* data, std::size_t bytes,
             std::size_t most_data) {
    data_begin_ = padded(head_bytes);
    most_ = sizeof(Length) + data_begin_ + most_data;
    have_ = 1;
    ++started_;
    in_memory_ = !shared_.empty() && data_begin_ + most_data <= NodeExchange::content_bytes;
    if (in_memory_) {
      NodeExchange::Entry& own = shared(rank_);
      length_ = sizeof own.agreement + data_begin_ + bytes;
      fill(own.content.data(), head, head_bytes, data, bytes);
      own.agreement.store(started_, std::memory_order_release);
      return;
    }
    coming_ = 0;
    if (const std::size_t room = most_ * ranks_; entries_.size() < room)
      entries_.resize(room);
    ends_.resize(ranks_ + 1);
    const Length length = sizeof length + data_begin_ + padded(bytes);
    std::memcpy(entries_.data(), &length, sizeof length);
    fill(entries_.data() + sizeof length, head, head_bytes, data, bytes);
    ends_[1] = length;
  }

  /// Advances as far as possible. @return whether every entry has arrived.
  [[nodiscard]] bool advance(const MpiChannel& channel, int tag, const MpiCallSite& site) {
    return in_memory_ ? look(channel, tag, site) : exchange(channel, tag, site);
  }

  /// Head of a rank's entry, once all have arrived.
  [[nodiscard]] const std::byte* head(int of_rank) const {
    const auto rank = static_cast<std::size_t>(of_rank);
    return in_memory_ ? shared(rank).content.data()
                      : entries_.data() + ends_[wrapped(rank + ranks_ - rank_)] + sizeof(Length);
  }
  template <class Head> [[nodiscard]] Head head_as(int of_rank) const {
    Head out;
    std::memcpy(&out, head(of_rank), sizeof out);
    return out;
  }
  /// Data of a rank's entry, from a multiple of 8 bytes on.
  [[nodiscard]] const std::byte* data(int of_rank) const { return head(of_rank) + data_begin_; }

  /// Adds the ranks of the group whose entries have not arrived.
  void add_missing(std::vector<bool>& missing) {
    requests_.add_missing(missing);
    for (std::size_t rank = 0; in_memory_ && rank < ranks_; ++rank)
      if (!arrived(rank))
        missing[rank] = true;
  }
  void cancel() noexcept { requests_.cancel(); }

private:
  using Length = std::uint64_t; ///< Of the whole entry; stored before its head.
  static constexpr std::size_t alignment = 8;

  [[nodiscard]] static constexpr std::size_t padded(std::size_t bytes) noexcept {
    return (bytes + alignment - 1) / alignment * alignment;
  }
  void fill(std::byte* entry, const void* head, std::size_t head_bytes, const void* data,
            std::size_t bytes) const noexcept {
    std::memcpy(entry, head, head_bytes);
    if (bytes != 0)
      std::memcpy(entry + data_begin_, data, bytes);
  }
  /// A sum of two ranks modulo their number, without a division.
  [[nodiscard]] std::size_t wrapped(std::size_t sum) const noexcept {
    return sum < ranks_ ? sum : sum - ranks_;
  }

  // In memory.

  [[nodiscard]] NodeExchange::Entry& shared(std::size_t rank) const noexcept {
    return shared_[rank][started_ % 2];
  }
  [[nodiscard]] bool arrived(std::size_t rank) const noexcept {
    return shared(rank).agreement.load(std::memory_order_acquire) == started_;
  }
  [[nodiscard]] bool look(const MpiChannel& channel, int tag, const MpiCallSite& site) {
    // Messages that MPI has queued leave only during its calls, and a peer may be waiting for one. A rank
    // sends itself none, so this finds nothing, and MPI proceeds.
    if (++looks_ % 64 == 0) {
      int found = 0;
      check_mpi(MPI_Iprobe(static_cast<int>(rank_), tag, channel.comm, &found, MPI_STATUS_IGNORE),
                "MPI_Iprobe", &site);
    }
    for (; have_ < ranks_ && arrived(wrapped(rank_ + have_)); ++have_)
      fetch<0>(shared(wrapped(rank_ + have_)));
    if (have_ < ranks_)
      return false;
    fetch<1>(shared_[rank_][(started_ + 1) % 2]); // its last readers have let go of it
    return true;
  }
  /// Begins to load the memory of an entry as long as this rank's, to read it (0) or to write it (1): one
  /// line after another would take longer.
  template <int Write> void fetch(const NodeExchange::Entry& entry) const noexcept {
    constexpr std::size_t most = 1024; // more is no faster
    const auto* const begin = reinterpret_cast<const std::byte*>(&entry);
    for (std::size_t at = 0; at < std::min(length_, most); at += alignof(NodeExchange::Entry))
      __builtin_prefetch(begin + at, Write);
  }

  // By messages: entry i is that of rank (own rank + i) mod ranks.

  [[nodiscard]] bool exchange(const MpiChannel& channel, int tag, const MpiCallSite& site) {
    for (;;) {
      if (!requests_.test(site))
        return false;
      for (; coming_ > 0; --coming_, ++have_)
        ends_[have_ + 1] = ends_[have_] + length_at(ends_[have_]);
      if (have_ >= ranks_)
        return true;
      // Sends the entries that have arrived to the rank that lacks them, and receives the same number.
      coming_ = std::min(have_, ranks_ - have_);
      constexpr auto ragged = MpiRequests::Mode::ragged;
      requests_.receive(channel, entries_.data() + ends_[have_], coming_ * most_,
                        static_cast<int>(wrapped(rank_ + have_)), tag, site, ragged);
      requests_.send(channel, entries_.data(), ends_[coming_],
                     static_cast<int>(wrapped(rank_ + ranks_ - have_)), tag, site, ragged);
    }
  }
  [[nodiscard]] std::size_t length_at(std::size_t begin) const noexcept {
    Length length = 0;
    std::memcpy(&length, entries_.data() + begin, sizeof length);
    return std::clamp<std::size_t>(length, sizeof length + data_begin_, most_);
  }

  std::vector<NodeExchange::Entry*> shared_; ///< Two for each rank; empty if they share no memory.
  std::size_t rank_;
  std::size_t ranks_;
  bool in_memory_ = false;
  std::uint64_t started_ = 0; ///< Agreements so far, the same number on all ranks.
  std::size_t length_ = 0;    ///< Bytes of this rank's entry in memory.
  unsigned looks_ = 0;
  std::vector<std::byte> entries_; ///< Contiguous, one after another.
  std::vector<std::size_t> ends_;  ///< A zero, then the end of each entry.
  std::size_t data_begin_ = 0;     ///< After the front of the head.
  std::size_t most_ = 0;           ///< Bytes of the longest entry.
  std::size_t have_ = 0;
  std::size_t coming_ = 0;
  MpiRequests requests_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
