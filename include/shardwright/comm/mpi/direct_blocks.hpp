// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Large blocks of an exchange, which a rank reads in the memory of another process of its machine.

#include <shardwright/comm/mpi/blocks.hpp>
#include <shardwright/comm/mpi/environment.hpp>
#include <shardwright/comm/mpi/process_memory.hpp>
#include <shardwright/comm/mpi/requests.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The blocks of one exchange that go without messages; the vectors are reused from call to call.
///
/// The sender of a large block tells the receiver where it lies: with the fingerprint of its call, or else by
/// a message. The receiver copies it to its place, from strides to strides, and then sends an empty message,
/// after which the sender's call may end. The system takes longer for a short row than a copy in this
/// process. So if the sender has short rows, the block is announced too, but comes by messages; if the
/// receiver has, it reads pieces and copies the rows of each.
class DirectBlocks {
public:
  /// Begins a call. The ranks that this one may read, and that may read it, are those with a process number
  /// in `channel`.
  void start(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    channel_ = &channel;
    rank_ = rank;
    tag_ = tag;
    site_ = site;
    in_use_ = false;
    reads_ = 0;
  }

  /// Notes a block for a rank, if it is large.
  void give(int to, const std::byte* in, const StridedBlock& block, std::size_t element_bytes) {
    if (!suits(to, block, element_bytes))
      return;
    const StridedBlock bytes = bytes_of(block, element_bytes);
    const bool in_rows = bytes.row_length <= longest_short_row;
    use(given_, to) = {BlockOffer::unlike_data, in_rows ? 0 : reinterpret_cast<std::uintptr_t>(in), bytes};
  }
  /// The announcements of those blocks, one for each rank; none if no block is large.
  [[nodiscard]] std::span<const BlockOffer> offers() const noexcept {
    return in_use_ ? std::span<const BlockOffer>(given_) : std::span<const BlockOffer>();
  }
  /// Announces the block for a rank, unless it is `announced`, and expects its answer.
  void announce(int to, bool announced) {
    if (!in_use_ || given_[static_cast<std::size_t>(to)].mark == 0)
      return;
    const BlockOffer& offer = given_[static_cast<std::size_t>(to)];
    if (!announced)
      messages_.send(*channel_, &offer, sizeof offer, to, tag_, site_);
    if (offer.address != 0)
      messages_.receive(*channel_, nullptr, 0, to, tag_ + 1, site_);
  }
  /// Expects a block, if it is large.
  /// @param offers The sender's, as from offers(); null if it announces the block by a message.
  void take(int from, const StridedBlock& block, std::size_t element_bytes, const std::byte* offers) {
    if (!suits(from, block, element_bytes))
      return;
    Taken& one = use(taken_, from);
    one.expected = bytes_of(block, element_bytes);
    if (offers != nullptr)
      std::memcpy(&one.offer, offers + static_cast<std::size_t>(rank_) * sizeof one.offer, sizeof one.offer);
  }

  /// Reads the blocks that have been announced to their places in `out`.
  /// @param given_up Returns whether another rank may have given up the call. It says so before its caller
  /// may change or free the data, so a block counts only if nobody has said so once it has been read.
  /// @return whether none is left; otherwise announcements are missing, or a rank has given up or is gone.
  /// @throws CollectiveMismatch if a block has another length than this rank's call says; TransportError.
  template <class GivenUp> [[nodiscard]] bool read(std::byte* out, GivenUp given_up) {
    bool all = true;
    const int ranks = in_use_ ? static_cast<int>(taken_.size()) : 0;
    for (int i = 1; i < ranks; ++i) {
      const int from = (rank_ + ranks - i) % ranks;
      Taken& one = taken_[static_cast<std::size_t>(from)];
      one.over =
          one.over || one.expected.count() == 0 || (arrives(from, one) && moves(from, one, out, given_up));
      all = all && one.over;
    }
    return all;
  }
  /// Whether a block goes to a rank, or has come from one, without messages; valid after read().
  [[nodiscard]] bool gives(int to) const noexcept {
    return in_use_ && given_[static_cast<std::size_t>(to)].address != 0;
  }
  [[nodiscard]] bool took(int from) const noexcept {
    return in_use_ && taken_[static_cast<std::size_t>(from)].offer.address != 0;
  }
  /// Blocks read so far.
  [[nodiscard]] std::size_t reads() const noexcept { return reads_; }
  /// Whether all others have read this rank's blocks.
  [[nodiscard]] bool answered() { return !in_use_ || messages_.test(site_); }

  /// Adds the ranks of the group for which this one waits.
  void add_missing(std::vector<bool>& missing) {
    messages_.add_missing(missing);
    for (std::size_t from = 0; in_use_ && from < taken_.size(); ++from)
      if (!taken_[from].over && taken_[from].expected.count() != 0)
        missing[from] = true;
  }
  void cancel() noexcept { messages_.cancel(); }

private:
  struct Taken {
    StridedBlock expected{}; ///< In bytes; empty if it is not announced.
    BlockOffer offer{};
    bool over = false;                                        ///< It has been read, or comes by messages.
    std::chrono::steady_clock::time_point unreadable_since{}; ///< Since the first error, if any.
  };

  /// To read a row takes half a microsecond more than to copy it.
  static constexpr std::size_t longest_short_row = std::size_t{16} << 10;
  /// Of a block that is read in pieces: they stay in the cache until their rows are copied.
  static constexpr std::size_t piece_bytes = std::size_t{128} << 10;
  /// Data may be gone because an exception unwinds the sender, which says so only at its end.
  static constexpr std::chrono::milliseconds longest_unwinding{200};

  [[nodiscard]] bool suits(int peer, const StridedBlock& block, std::size_t element_bytes) const noexcept {
    return block.count() * element_bytes > MpiRequests::unannounced_bytes &&
           channel_->processes[static_cast<std::size_t>(peer)] != 0;
  }
  [[nodiscard]] static StridedBlock bytes_of(const StridedBlock& block, std::size_t element_bytes) noexcept {
    if (block.contiguous())
      return contiguous_block(block.offset * element_bytes, block.count() * element_bytes);
    return {block.offset * element_bytes, block.rows, block.row_length * element_bytes,
            block.row_stride * element_bytes};
  }
  template <class Entry> [[nodiscard]] Entry& use(std::vector<Entry>& entries, int peer) {
    if (!in_use_) {
      given_.assign(channel_->world_ranks.size(), {});
      taken_.assign(channel_->world_ranks.size(), {});
      in_use_ = true;
    }
    return entries[static_cast<std::size_t>(peer)];
  }

  /// Whether the announcement of a block has arrived.
  [[nodiscard]] bool arrives(int from, Taken& one) const {
    if (one.offer.mark != 0)
      return true;
    // Open MPI writes beyond the end of a receive if the message is longer, so its length comes first.
    int found = 0, count = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(from, tag_, channel_->comm, &found, &status), "MPI_Iprobe", &site_);
    if (found == 0)
      return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    auto bytes = static_cast<std::size_t>(count);
    if (bytes == sizeof one.offer) {
      check_mpi(MPI_Recv(&one.offer, count, MPI_BYTE, from, tag_, channel_->comm, MPI_STATUS_IGNORE),
                "MPI_Recv", &site_);
      if (one.offer.mark == BlockOffer::unlike_data)
        bytes = one.offer.block.count();
    }
    if (bytes != one.expected.count())
      MpiRequests::mismatch(from, one.expected.count(), "sent " + std::to_string(bytes) + " bytes", site_);
    return true;
  }
  /// Reads a block unless it comes by messages. @return whether it counts.
  template <class GivenUp> [[nodiscard]] bool moves(int from, Taken& one, std::byte* out, GivenUp given_up) {
    if (one.offer.address == 0)
      return true;
    if (given_up())
      return false;
    const int code = copy(channel_->processes[static_cast<std::size_t>(from)], one, out);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (given_up() || code == ESRCH)
      return false;
    if (code != 0) {
      look_again_or_throw(from, one, code);
      return false;
    }
    ++reads_;
    messages_.send(*channel_, nullptr, 0, from, tag_ + 1, site_);
    return true;
  }
  /// @return as read_memory().
  [[nodiscard]] int copy(int process, const Taken& one, std::byte* out) {
    const std::uint64_t address = one.offer.address;
    const StridedBlock& theirs = one.offer.block;
    if (one.expected.row_length > longest_short_row)
      return read_memory(process, address, theirs, 0, out, one.expected);
    piece_.resize(piece_bytes);
    for (std::size_t begin = 0, count = one.expected.count(); begin < count; begin += piece_bytes) {
      const BlockPart part{one.expected, begin, std::min(count, begin + piece_bytes)};
      const StridedBlock whole = contiguous_block(0, part.count());
      if (const int code = read_memory(process, address, theirs, begin, piece_.data(), whole); code != 0)
        return code;
      unpack(piece_.data(), part, 1, out);
    }
    return 0;
  }

  /// Data could not be read although no rank has given up.
  void look_again_or_throw(int from, Taken& one, int code) const {
    const auto now = std::chrono::steady_clock::now();
    if (one.unreadable_since == std::chrono::steady_clock::time_point{})
      one.unreadable_since = now;
    if (now - one.unreadable_since <= longest_unwinding)
      return;
    std::string advice;
    if (code == EFAULT)
      advice = " (pass memory that lives until its call has ended)";
    if (code == EPERM)
      advice = " (let ranks read one another for as long as their world lives: change neither their user nor "
               "PR_SET_DUMPABLE in between)";
    if (code == ENOMEM)
      advice = " (leave more memory of the node free)";
    throw TransportError(code,
                         "process_vm_readv: the data of rank " + std::to_string(from) +
                             " of the group must be readable, but the system reported \"" +
                             std::strerror(code) + "\"" + advice,
                         site_.context());
  }

  const MpiChannel* channel_ = nullptr;
  int rank_ = 0;
  int tag_ = 0;
  MpiCallSite site_{};
  bool in_use_ = false;
  std::size_t reads_ = 0;
  std::vector<BlockOffer> given_; ///< Of each rank.
  std::vector<Taken> taken_;
  std::vector<std::byte> piece_;
  MpiRequests messages_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
