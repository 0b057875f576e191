// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The data movement of one call over MPI: nonblocking messages, advanced step by step.

#include <shardwright/comm/broadcast_route.hpp>
#include <shardwright/comm/call.hpp>
#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/comm/mpi/agreement.hpp>
#include <shardwright/comm/mpi/blocks.hpp>
#include <shardwright/comm/mpi/call_messages.hpp>
#include <shardwright/comm/mpi/direct_blocks.hpp>
#include <shardwright/comm/mpi/requests.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Moves the data of one call after another; its requests are reused between calls.
///
/// Large blocks of an exchange are read in the other process where that is allowed. Every other block is cut
/// into segments, and two segments are in flight at a time. An all_reduce exchanges slices, combines this
/// rank's slice in the fixed order, and gathers the results: each of P ranks sends 2 (P-1)/P of its bytes.
class MpiTransfer : private MpiCallMessages {
public:
  /// broadcast runs along a tree up to this many bytes, along a chain above.
  static constexpr std::size_t tree_bytes = std::size_t{32} << 10;

  /// Prepares a call. @return what announces the large blocks of an exchange to each rank, if there are any.
  [[nodiscard]] std::span<const BlockOffer> prepare(const CollectiveCall& call, const MpiChannel& channel,
                                                    int rank, int ranks, int tag, const MpiCallSite& site) {
    set(call, channel, rank, ranks, tag, site);
    direct_.start(channel, rank, tag, site);
    const int blocks = exchanges(call.operation) ? ranks : 0;
    for (int to = 0; to < blocks; ++to)
      if (to != rank)
        direct_.give(to, in_, source(to), element_bytes_);
    return direct_.offers();
  }

  /// Begins a call; the call and the scratch memory must stay valid until it ends. It may use `tag` and the
  /// next tag.
  /// @param announced The agreement that had the announcements of all ranks as data, if it has been prepared.
  void start(const CollectiveCall& call, const MpiChannel& channel, MpiScratch& scratch, int rank, int ranks,
             int tag, const MpiCallSite& site, const MpiAgreement* announced) {
    if (announced == nullptr)
      static_cast<void>(prepare(call, channel, rank, ranks, tag, site));
    scratch_ = &scratch;
    step_ = 0;
    reduced_ = false;
    plan(announced);
    post(0);
    post(1);
  }

  /// Whether a call consists of blocks from every rank to every other.
  [[nodiscard]] static bool exchanges(Operation operation) noexcept {
    return operation == Operation::all_gather || operation == Operation::all_to_all;
  }

  /// A complete all_reduce whose inputs have already arrived, that of rank r at `input(r)`.
  template <class Input>
  void reduce_here(const CollectiveCall& call, MpiScratch& scratch, int ranks, Input input) {
    runs_.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      runs_[static_cast<std::size_t>(rank)] = input(rank);
    scratch.reduction.begin(call.element, call.reduce_op, call.order);
    scratch.reduction.run(runs_.data(), &call.out, 1, call.count, false);
  }

  /// Advances as far as messages allow. @return whether the call is done.
  /// @param given_up As for DirectBlocks::read().
  template <class GivenUp> [[nodiscard]] bool advance(GivenUp given_up) {
    if (plan_ == Plan::exchange && !begin_messages(given_up))
      return false;
    for (; step_ < steps_; ++step_)
      if (!finish_step())
        return false;
    return second_[0].test(site_) && second_[1].test(site_) && direct_.answered();
  }

  /// Steps done so far, to tell whether anything has moved.
  [[nodiscard]] std::size_t steps_done() const noexcept { return step_ + direct_.reads(); }

  /// Adds the ranks of the group for which this one waits.
  void add_missing(std::vector<bool>& missing) {
    for (auto* requests : {&first_, &second_})
      for (MpiRequests& one : *requests)
        one.add_missing(missing);
    direct_.add_missing(missing);
  }
  void cancel() noexcept {
    direct_.cancel();
    for (auto* requests : {&first_, &second_})
      for (MpiRequests& one : *requests)
        one.cancel();
  }

private:
  enum class Plan { nothing, reduce, reduce_at_once, exchange, broadcast, send, receive };

  void plan(const MpiAgreement* announced) {
    steps_ = 0;
    plan_ = Plan::nothing;
    if (call_->operation == Operation::send || call_->operation == Operation::receive) {
      plan_ = call_->operation == Operation::send ? Plan::send : Plan::receive;
      steps_ = std::max<std::size_t>(1, steps_for(call_->count));
      return;
    }
    if (call_->operation == Operation::broadcast)
      return plan_broadcast();
    if (reduces(call_->operation))
      return plan_reduce();
    if (exchanges(call_->operation))
      plan_exchange(announced);
  }

  void plan_reduce() {
    const bool at_once =
        call_->operation == Operation::all_reduce && ranks_ > 1 &&
        call_->count * element_bytes_ * static_cast<std::size_t>(ranks_) <= MpiRequests::one_round_bytes;
    plan_ = at_once ? Plan::reduce_at_once : Plan::reduce;
    // Slices of an aligned buffer start at cache lines.
    slice_ = (call_->count + static_cast<std::size_t>(ranks_) - 1) / static_cast<std::size_t>(ranks_);
    slice_ = (slice_ + line - 1) / line * line;
    std::size_t largest = 0;
    bool packed = false;
    for (int rank = 0; rank < ranks_; ++rank) {
      largest = std::max(largest, source(rank).count());
      packed = packed || !source(rank).contiguous();
    }
    steps_ = steps_for(largest);
    scratch_->reserve(std::min(largest, segment_) * element_bytes_, true, packed);
    runs_.resize(static_cast<std::size_t>(ranks_));
    scratch_->reduction.begin(call_->element, call_->reduce_op, call_->order);
  }

  /// Announces the large blocks, so that others may read them while this rank copies its own.
  void plan_exchange(const MpiAgreement* announced) {
    plan_ = Plan::exchange;
    planned_ = false;
    for (int i = 1; i < ranks_; ++i) {
      const int from = (rank_ + ranks_ - i) % ranks_, to = (rank_ + i) % ranks_;
      direct_.take(from, target(from), element_bytes_,
                   announced == nullptr ? nullptr : announced->data(from));
      direct_.announce(to, announced != nullptr);
    }
    if (!in_place(*call_, rank_))
      copy_block(out_, target(rank_), in_, source(rank_), element_bytes_, false);
  }

  /// The rest of an exchange: the blocks that need messages.
  void plan_messages() {
    std::size_t largest = 0;
    bool packed = false;
    unpacks_ = false;
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank_ + i) % ranks_;
      if (const StridedBlock block = source(peer); !direct_.gives(peer)) {
        largest = std::max(largest, block.count());
        packed = packed || !block.contiguous();
      }
      if (const StridedBlock block = target(peer); !direct_.took(peer)) {
        largest = std::max(largest, block.count());
        unpacks_ = unpacks_ || !block.contiguous();
      }
    }
    steps_ = steps_for(largest);
    scratch_->reserve(std::min(largest, segment_) * element_bytes_, unpacks_, packed);
    post(0);
    post(1);
  }

  void plan_broadcast() {
    plan_ = Plan::broadcast;
    const auto bytes = call_->count * element_bytes_;
    route_ = {rank_, ranks_, call_->root, bytes <= tree_bytes};
    steps_ = ranks_ == 1 ? 0 : steps_for(call_->count);
    if (rank_ == call_->root && in_ != out_ && out_ != nullptr && bytes != 0)
      std::memcpy(out_, in_, bytes);
  }

  /// Posts the messages of a step that need no earlier step of this call.
  void post(std::size_t step) {
    if (step >= steps_)
      return;
    MpiRequests& requests = first_[step % 2];
    switch (plan_) {
    case Plan::nothing:
      return;
    case Plan::reduce:
      return post_contributions(step, requests);
    case Plan::reduce_at_once:
      return post_everything(requests);
    case Plan::exchange:
      return post_exchange(step, requests);
    case Plan::broadcast:
      if (!route_.begins())
        receive_part(requests, whole(step), out_, route_.parent(), 0);
      return;
    case Plan::send:
      return send_message(requests, step);
    case Plan::receive: {
      const BlockPart part = whole(step);
      requests.receive(*channel_, out_ + part.begin * element_bytes_, part.count() * element_bytes_,
                       call_->root, tag_, site_, MpiRequests::Mode::synchronous);
      return;
    }
    }
  }

  /// Ends the current step and starts what depends on it. @return false if messages are still missing.
  [[nodiscard]] bool finish_step() {
    MpiRequests& first = first_[step_ % 2];
    MpiRequests& second = second_[step_ % 2];
    if (!first.test(site_))
      return false;
    switch (plan_) {
    case Plan::reduce:
    case Plan::reduce_at_once:
      if (!reduced_) {
        reduce();
        post(step_ + 2);
        reduced_ = true;
      }
      if (plan_ == Plan::reduce && call_->operation == Operation::all_reduce) {
        if (!second.test(site_))
          return false;
        post_results(second);
      }
      reduced_ = false;
      return true;
    case Plan::broadcast:
      if (!second.test(site_))
        return false;
      pass_on(second);
      break;
    case Plan::exchange:
      if (unpacks_)
        unpack_step();
      break;
    default:
      break;
    }
    post(step_ + 2);
    return true;
  }

  // Reductions.

  /// A rank's contribution to another rank's block, or its message to that rank.
  [[nodiscard]] StridedBlock source(int to) const noexcept {
    switch (call_->operation) {
    case Operation::all_reduce: {
      if (plan_ == Plan::reduce_at_once)
        return contiguous_block(0, call_->count);
      const std::size_t begin = std::min(call_->count, slice_ * static_cast<std::size_t>(to));
      return contiguous_block(begin, std::min(call_->count, begin + slice_) - begin);
    }
    case Operation::all_gather:
      return contiguous_block(0, call_->count);
    default:
      return call_->in_block(to);
    }
  }
  [[nodiscard]] StridedBlock target(int from) const noexcept { return call_->out_block(from); }

  void post_contributions(std::size_t step, MpiRequests& requests) {
    const std::size_t bytes = part_of(source(rank_), step, segment_).count() * element_bytes_;
    for (int i = 1; i < ranks_ && bytes != 0; ++i) {
      const int from = (rank_ + ranks_ - i) % ranks_;
      requests.receive(*channel_, scratch_->received(step, from), bytes, from, tag_, site_);
    }
    for (int i = 1; i < ranks_; ++i)
      send_source(step, (rank_ + i) % ranks_, requests);
  }

  void post_everything(MpiRequests& requests) {
    const std::size_t bytes = call_->count * element_bytes_;
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank_ + i) % ranks_;
      requests.receive(*channel_, scratch_->received(0, peer), bytes, peer, tag_, site_);
      requests.send(*channel_, in_, bytes, peer, tag_, site_);
    }
  }

  void reduce() {
    const BlockPart part = part_of(source(rank_), step_, segment_);
    if (part.count() == 0 || (ranks_ == 1 && in_ == out_))
      return;
    for (int rank = 0; rank < ranks_; ++rank)
      runs_[static_cast<std::size_t>(rank)] = scratch_->received(step_, rank);
    std::byte* const own = scratch_->received(step_, rank_);
    if (part.block.contiguous())
      runs_[static_cast<std::size_t>(rank_)] = in_ + (part.block.offset + part.begin) * element_bytes_;
    else
      pack(in_, part, element_bytes_, own);
    const std::size_t at = part.begin + (call_->operation == Operation::all_reduce ? part.block.offset : 0);
    void* const to = out_ + at * element_bytes_;
    scratch_->reduction.run(runs_.data(), &to, 1, part.count(), false);
  }

  void post_results(MpiRequests& requests) {
    for (int i = 1; i < ranks_; ++i) {
      const int from = (rank_ + ranks_ - i) % ranks_;
      receive_part(requests, part_of(source(from), step_, segment_), out_, from, 1);
    }
    const BlockPart own = part_of(source(rank_), step_, segment_);
    for (int i = 1; i < ranks_; ++i)
      send_part(requests, own, out_, (rank_ + i) % ranks_, 1);
  }

  // Exchanges of blocks.

  /// Reads the large blocks, and then posts the messages of the others. @return whether that is done.
  template <class GivenUp> [[nodiscard]] bool begin_messages(GivenUp given_up) {
    if (!planned_) {
      if (!direct_.read(out_, given_up))
        return false;
      plan_messages();
      planned_ = true;
    }
    return true;
  }

  /// The part of a block that comes by messages in a step.
  [[nodiscard]] BlockPart incoming(int from, std::size_t step) const noexcept {
    return direct_.took(from) ? BlockPart{} : part_of(target(from), step, segment_);
  }

  void post_exchange(std::size_t step, MpiRequests& requests) {
    for (int i = 1; i < ranks_; ++i) {
      const int from = (rank_ + ranks_ - i) % ranks_;
      const BlockPart part = incoming(from, step);
      if (part.block.contiguous())
        receive_part(requests, part, out_, from, 0);
      else if (part.count() != 0)
        requests.receive(*channel_, scratch_->received(step, from), part.count() * element_bytes_, from, tag_,
                         site_);
    }
    for (int i = 1; i < ranks_; ++i)
      send_source(step, (rank_ + i) % ranks_, requests);
  }

  void unpack_step() {
    for (int from = 0; from < ranks_; ++from) {
      const BlockPart part = incoming(from, step_);
      if (from != rank_ && !part.block.contiguous())
        unpack(scratch_->received(step_, from), part, element_bytes_, out_);
    }
  }

  void send_source(std::size_t step, int to, MpiRequests& requests) {
    const BlockPart part = direct_.gives(to) ? BlockPart{} : part_of(source(to), step, segment_);
    if (part.block.contiguous() || part.count() == 0)
      return send_part(requests, part, in_, to, 0);
    std::byte* const packed = scratch_->packed(step, to);
    pack(in_, part, element_bytes_, packed);
    requests.send(*channel_, packed, part.count() * element_bytes_, to, tag_, site_);
  }

  void pass_on(MpiRequests& requests) {
    route_.for_each_child(
        [&](int child) { send_part(requests, whole(step_), route_.begins() ? in_ : out_, child, 0); });
  }

  static constexpr std::size_t line = 64;

  MpiScratch* scratch_ = nullptr;
  std::size_t slice_ = 0; ///< Elements of an all_reduce that one rank combines.
  Plan plan_ = Plan::nothing;
  BroadcastRoute route_{};
  std::size_t step_ = 0;
  std::size_t steps_ = 0;
  bool reduced_ = false;
  bool planned_ = false; ///< The messages of an exchange.
  bool unpacks_ = false;
  std::array<MpiRequests, 2> first_;
  std::array<MpiRequests, 2> second_;
  DirectBlocks direct_;
  std::vector<const void*> runs_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
