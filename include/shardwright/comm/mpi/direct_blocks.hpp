// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Large blocks of an exchange, which a rank reads in the memory of another process of its machine.

#include <shardwright/comm/mpi/blocks.hpp>
#include <shardwright/comm/mpi/process_memory.hpp>
#include <shardwright/comm/mpi/requests.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The blocks of one exchange that go without messages; the vectors are reused from call to call.
///
/// The sender of a large block tells the receiver where it lies. The receiver copies it to its place, from
/// strides to strides, and then sends an empty message, after which the sender's call may end. A block of
/// short rows is announced too, but comes by messages: to read a row in another process takes longer than to
/// pack it.
class DirectBlocks {
public:
  /// Begins a call. The ranks that this one may read, and that may read it, are those with a process number
  /// in `channel`.
  void start(const MpiChannel& channel, int tag, const MpiCallSite& site) {
    channel_ = &channel;
    tag_ = tag;
    site_ = site;
    in_use_ = false;
    reads_ = 0;
  }

  /// Announces a block to the rank to which it goes, if it is large.
  void give(int to, const std::byte* in, const StridedBlock& block, std::size_t element_bytes) {
    if (!suits(to, block, element_bytes))
      return;
    const StridedBlock bytes = bytes_of(block, element_bytes);
    const bool in_rows = bytes.row_length <= MpiRequests::parted_bytes;
    BlockOffer& offer = use(given_, to);
    offer = {BlockOffer::unlike_data, in_rows ? 0 : reinterpret_cast<std::uintptr_t>(in), bytes};
    offers_.send(*channel_, &offer, sizeof offer, to, tag_, site_);
    if (!in_rows)
      answers_.receive(*channel_, nullptr, 0, to, tag_ + 1, site_);
  }
  /// Expects the announcement of a block, if it is large.
  void take(int from, const StridedBlock& block, std::size_t element_bytes) {
    if (!suits(from, block, element_bytes))
      return;
    BlockOffer& offer = use(taken_, from);
    offers_.receive_offer(*channel_, offer, block.count() * element_bytes, from, tag_, site_);
  }

  /// Whether the announcements of all blocks have arrived.
  /// @throws CollectiveMismatch if one has another length than this rank's call says.
  [[nodiscard]] bool known() { return !in_use_ || offers_.test(site_); }
  /// Whether a block goes to a rank, or comes from one, without messages; valid once it is known().
  [[nodiscard]] bool gives(int to) const noexcept {
    return in_use_ && given_[static_cast<std::size_t>(to)].address != 0;
  }
  [[nodiscard]] bool takes(int from) const noexcept {
    return in_use_ && taken_[static_cast<std::size_t>(from)].address != 0;
  }

  /// Reads the block of a rank for which takes() is true.
  /// @return whether it has been read; otherwise its process is gone.
  /// @throws TransportError.
  [[nodiscard]] bool read(int from, std::byte* out, const StridedBlock& to, std::size_t element_bytes) {
    BlockOffer& offer = taken_[static_cast<std::size_t>(from)];
    const int code = read_memory(channel_->processes[static_cast<std::size_t>(from)], offer.address,
                                 offer.block, out, bytes_of(to, element_bytes));
    if (code == ESRCH)
      return false;
    if (code != 0)
      throw TransportError(code,
                           "process_vm_readv: the data of rank " + std::to_string(from) +
                               " of the group must be readable, but the system reported \"" +
                               std::strerror(code) + "\" (pass memory that lives until its call has ended)",
                           site_.context());
    offer.mark = 0;
    ++reads_;
    answers_.send(*channel_, nullptr, 0, from, tag_ + 1, site_);
    return true;
  }
  /// Whether all others have read this rank's blocks.
  [[nodiscard]] bool answered() { return !in_use_ || answers_.test(site_); }
  /// Blocks read so far.
  [[nodiscard]] std::size_t reads() const noexcept { return reads_; }

  /// Adds the ranks of the group for which this one waits.
  void add_missing(std::vector<bool>& missing) {
    offers_.add_missing(missing);
    answers_.add_missing(missing);
    for (std::size_t from = 0; in_use_ && from < taken_.size(); ++from)
      if (taken_[from].address != 0 && taken_[from].mark != 0)
        missing[from] = true;
  }
  void cancel() noexcept {
    offers_.cancel();
    answers_.cancel();
  }

private:
  [[nodiscard]] bool suits(int peer, const StridedBlock& block, std::size_t element_bytes) const noexcept {
    return block.count() * element_bytes > MpiRequests::parted_bytes &&
           channel_->processes[static_cast<std::size_t>(peer)] != 0;
  }
  [[nodiscard]] static StridedBlock bytes_of(const StridedBlock& block, std::size_t element_bytes) noexcept {
    if (block.contiguous())
      return contiguous_block(block.offset * element_bytes, block.count() * element_bytes);
    return {block.offset * element_bytes, block.rows, block.row_length * element_bytes,
            block.row_stride * element_bytes};
  }
  [[nodiscard]] BlockOffer& use(std::vector<BlockOffer>& offers, int peer) {
    if (!in_use_) {
      given_.assign(channel_->world_ranks.size(), {});
      taken_.assign(channel_->world_ranks.size(), {});
      in_use_ = true;
    }
    return offers[static_cast<std::size_t>(peer)];
  }

  const MpiChannel* channel_ = nullptr;
  int tag_ = 0;
  MpiCallSite site_{};
  bool in_use_ = false;
  std::size_t reads_ = 0;
  std::vector<BlockOffer> given_; ///< Of each rank.
  std::vector<BlockOffer> taken_;
  MpiRequests offers_;
  MpiRequests answers_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
