// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages of one call: parts of its buffers, to and from other ranks.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/mpi/blocks.hpp>
#include <shardwright/comm/mpi/requests.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One call after another, and how its blocks are cut into messages.
class MpiCallMessages {
protected:
  /// Bytes of a block in one message. All ranks cut blocks alike, whatever their strides; with many ranks the
  /// pieces are smaller, so that scratch memory does not grow with their number.
  static constexpr std::size_t segment_bytes(int ranks) noexcept {
    return std::clamp((std::size_t{4} << 20) / static_cast<std::size_t>(ranks), std::size_t{32} << 10,
                      std::size_t{512} << 10);
  }

  void set(const CollectiveCall& call, const MpiChannel& channel, int rank, int ranks, int tag,
           const MpiCallSite& site) {
    call_ = &call;
    channel_ = &channel;
    rank_ = rank;
    tag_ = tag;
    site_ = site;
    if (const std::size_t bytes = size_of(call.element); ranks_ != ranks || element_bytes_ != bytes) {
      ranks_ = ranks;
      element_bytes_ = bytes;
      segment_ = segment_bytes(ranks) / bytes;
    }
    in_ = static_cast<const std::byte*>(call.in);
    out_ = static_cast<std::byte*>(call.out);
  }

  void send_message(MpiRequests& requests, std::size_t step) {
    const BlockPart part = whole(step);
    // A send ends when its receive has begun, so that a send without a receive is detected.
    requests.send(*channel_, in_ == nullptr ? nullptr : in_ + part.begin * element_bytes_,
                  part.count() * element_bytes_, call_->root, tag_, site_, MpiRequests::Mode::synchronous);
  }

  [[nodiscard]] BlockPart whole(std::size_t step) const noexcept {
    return part_of(contiguous_block(0, call_->count), step, segment_);
  }
  void send_part(MpiRequests& requests, const BlockPart& part, const std::byte* base, int to, int phase) {
    if (part.count() != 0)
      requests.send(*channel_, base + (part.block.offset + part.begin) * element_bytes_,
                    part.count() * element_bytes_, to, tag_ + phase, site_);
  }
  void receive_part(MpiRequests& requests, const BlockPart& part, std::byte* base, int from, int phase) {
    if (part.count() != 0)
      requests.receive(*channel_, base + (part.block.offset + part.begin) * element_bytes_,
                       part.count() * element_bytes_, from, tag_ + phase, site_);
  }

  [[nodiscard]] std::size_t steps_for(std::size_t count) const noexcept {
    return count <= segment_ ? (count == 0 ? 0 : 1) : (count + segment_ - 1) / segment_;
  }

  const CollectiveCall* call_ = nullptr;
  const MpiChannel* channel_ = nullptr;
  int rank_ = 0;
  int ranks_ = 0; ///< Like element_bytes_ and segment_, kept from the previous call if unchanged.
  int tag_ = 0;
  MpiCallSite site_{};
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::size_t element_bytes_ = 0;
  std::size_t segment_ = 0; ///< Elements.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
