// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Maps one collective to NCCL operations: packing, the group of operations, unpacking.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/device/nccl/blocks.hpp>
#include <shardwright/device/nccl/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A collective of one rank in three steps: `pack`, `issue` into a group of NCCL, `unpack`.
///
/// | call | operations of NCCL |
/// |---|---|
/// | all_reduce, broadcast | the same |
/// | all_gather, reduce_scatter, equal blocks | the same |
/// | all_gather, other blocks | a group of one broadcast for each block |
/// | reduce_scatter, other blocks | a group of one reduction for each block |
/// | all_to_all | a group of sends and receives |
/// | barrier | an all-reduce of one byte |
/// | send, receive | the same, in one group with the other messages of their exchange |
///
/// Strided blocks go through a packed copy. Blocks of unequal sizes thus need neither padding nor a copy, and
/// move as many bytes as equal ones.
template <class Api, class Runtime> class NcclCollective {
public:
  using Stream = typename Runtime::Stream;

  NcclCollective(Api& api, Runtime& runtime, int rank, int ranks)
      : api_(api), runtime_(runtime), rank_(rank), ranks_(ranks), scratch_(runtime) {}

  /// Prepares a call and enqueues the kernel before it, if any. The call must stay until `unpack`.
  void pack(const CollectiveCall& call, Stream& stream) {
    call_ = &call;
    bytes_ = size_of(call.element);
    in_ = static_cast<const std::byte*>(call.in);
    out_ = static_cast<std::byte*>(call.out);
    unpacks_ = false;
    if (call.operation == Operation::barrier) {
      out_ = scratch_.of(1, stream);
      in_ = out_;
      return;
    }
    const bool packs = has_in_blocks(call.operation) && moves(call.in_blocks);
    unpacks_ = has_out_blocks(call.operation) && moves(call.out_blocks);
    const std::size_t in_count = place(has_in_blocks(call.operation), call.in_blocks, packs, in_places_);
    const std::size_t out_count =
        place(has_out_blocks(call.operation), call.out_blocks, unpacks_, out_places_);
    if (!packs && !unpacks_)
      return;
    const std::size_t line = 256; // packed runs are aligned for wide accesses and for NCCL
    const std::size_t in_bytes = packs ? (in_count * bytes_ + line - 1) / line * line : 0;
    std::byte* const packed = scratch_.of(in_bytes + out_count * bytes_, stream);
    if (packs) {
      BlockCopies<Runtime>(runtime_, stream).pack(call.in, packed, call.in_blocks, bytes_);
      in_ = packed;
    }
    if (unpacks_)
      out_ = packed + in_bytes;
  }

  /// Enqueues NCCL's operations; inside a group.
  [[nodiscard]] NcclResult issue(typename Api::Communicator comm, typename Api::Stream stream) {
    const CollectiveCall& call = *call_;
    switch (call.operation) {
    case Operation::barrier:
      return api_.all_reduce(in_, out_, 1, ElementType::uint8, ReduceOp::sum, comm, stream);
    case Operation::all_reduce:
      return call.count == 0
                 ? NcclResult::success
                 : api_.all_reduce(in_, out_, call.count, call.element, call.reduce_op, comm, stream);
    case Operation::broadcast:
      return call.count == 0 ? NcclResult::success
                             : api_.broadcast(rank_ == call.root ? in_ : out_, out_, call.count, call.element,
                                              call.root, comm, stream);
    case Operation::all_gather:
      return all_gather(comm, stream);
    case Operation::reduce_scatter:
      return reduce_scatter(comm, stream);
    case Operation::all_to_all:
      return all_to_all(comm, stream);
    case Operation::split:
    case Operation::send:
    case Operation::receive:
      break;
    }
    return NcclResult::invalid_usage;
  }

  /// Enqueues a message; inside a group.
  [[nodiscard]] NcclResult issue_message(const CollectiveCall& call, typename Api::Communicator comm,
                                         typename Api::Stream stream) {
    if (call.count == 0)
      return NcclResult::success;
    return call.operation == Operation::send
               ? api_.send(call.in, call.count, call.element, call.root, comm, stream)
               : api_.receive(call.out, call.count, call.element, call.root, comm, stream);
  }

  /// Enqueues the unpacking kernel, if any, once NCCL's operations are on the stream.
  void unpack(Stream& stream) {
    if (unpacks_)
      BlockCopies<Runtime>(runtime_, stream).unpack(out_, call_->out, call_->out_blocks, bytes_);
  }

private:
  /// A contiguous block of a rank.
  struct Place {
    std::size_t offset = 0;
    std::size_t count = 0;
  };

  /// Whether all blocks have the same size. Strides and offsets may differ between ranks, so they must not
  /// determine the operation.
  [[nodiscard]] static bool equal(std::span<const StridedBlock> blocks) noexcept {
    return std::all_of(blocks.begin(), blocks.end(),
                       [&](const auto& block) { return block.count() == blocks.front().count(); });
  }
  /// Whether blocks go through a packed copy: strided ones, and equal ones that are not adjacent.
  [[nodiscard]] bool moves(std::span<const StridedBlock> blocks) const noexcept {
    if (!all_contiguous(blocks))
      return true;
    if (call_->operation == Operation::all_to_all || !equal(blocks))
      return false;
    for (std::size_t r = 0; r < blocks.size(); ++r)
      if (blocks[r].offset != r * blocks[r].count() && blocks[r].count() > 0)
        return true;
    return false;
  }
  /// Records the positions of a side's blocks, packed or in place; returns their number of elements.
  std::size_t place(bool has_blocks, std::span<const StridedBlock> blocks, bool packed,
                    std::vector<Place>& places) const {
    places.clear();
    std::size_t elements = 0;
    for (std::size_t r = 0; has_blocks && r < static_cast<std::size_t>(ranks_); ++r) {
      const StridedBlock block =
          blocks.empty() ? contiguous_block(r * call_->count, call_->count) : blocks[r];
      places.push_back({packed ? elements : block.offset, block.count()});
      elements += block.count();
    }
    return elements;
  }

  [[nodiscard]] NcclResult all_gather(typename Api::Communicator comm, typename Api::Stream stream) {
    if (equal(call_->out_blocks))
      return call_->count == 0 ? NcclResult::success
                               : api_.all_gather(in_, out_, call_->count, call_->element, comm, stream);
    for (int root = 0; root < ranks_; ++root) {
      const Place& place = out_places_[static_cast<std::size_t>(root)];
      std::byte* const to = out_ + place.offset * bytes_;
      if (place.count == 0)
        continue;
      const NcclResult result =
          api_.broadcast(root == rank_ ? in_ : to, to, place.count, call_->element, root, comm, stream);
      if (failed(result))
        return result;
    }
    return NcclResult::success;
  }

  [[nodiscard]] NcclResult reduce_scatter(typename Api::Communicator comm, typename Api::Stream stream) {
    if (equal(call_->in_blocks))
      return call_->count == 0 ? NcclResult::success
                               : api_.reduce_scatter(in_, out_, call_->count, call_->element,
                                                     call_->reduce_op, comm, stream);
    for (int root = 0; root < ranks_; ++root) {
      const Place& place = in_places_[static_cast<std::size_t>(root)];
      if (place.count == 0)
        continue;
      const NcclResult result =
          api_.reduce(in_ + place.offset * bytes_, root == rank_ ? out_ : nullptr, place.count,
                      call_->element, call_->reduce_op, root, comm, stream);
      if (failed(result))
        return result;
    }
    return NcclResult::success;
  }

  [[nodiscard]] NcclResult all_to_all(typename Api::Communicator comm, typename Api::Stream stream) {
    for (int step = 0; step < ranks_; ++step) {
      // Each rank begins with a different peer, so that they do not all write to the same one.
      const int to = (rank_ + step) % ranks_;
      const int from = (rank_ + ranks_ - step) % ranks_;
      const Place& sent = in_places_[static_cast<std::size_t>(to)];
      const Place& received = out_places_[static_cast<std::size_t>(from)];
      NcclResult result = NcclResult::success;
      if (sent.count > 0)
        result = api_.send(in_ + sent.offset * bytes_, sent.count, call_->element, to, comm, stream);
      if (!failed(result) && received.count > 0)
        result =
            api_.receive(out_ + received.offset * bytes_, received.count, call_->element, from, comm, stream);
      if (failed(result))
        return result;
    }
    return NcclResult::success;
  }

  Api& api_;
  Runtime& runtime_;
  int rank_;
  int ranks_;
  DeviceScratch<Runtime> scratch_;
  std::vector<Place> in_places_;
  std::vector<Place> out_places_;
  const CollectiveCall* call_ = nullptr;
  std::size_t bytes_ = 0;
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  bool unpacks_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
