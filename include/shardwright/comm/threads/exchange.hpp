// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The data exchange by thread ranks while all ranks' buffers are accessible.

#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/comm/reduce.hpp>
#include <shardwright/comm/threads/cache_size.hpp>
#include <shardwright/comm/threads/group.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The ranks' parts of the data exchange between the two meetings of a collective; any thread may do any
/// rank's part, once.
///
/// Pull: a rank reads from all and writes its own output. Push: a rank combines or holds one slice and writes
/// it to every output, which is safe in place, because no other rank touches that slice. Both add in the same
/// order.
class ThreadExchange {
public:
  explicit ThreadExchange(int ranks)
      : ranks_(ranks), reduction_(ranks), ins_(static_cast<std::size_t>(ranks)),
        outs_(static_cast<std::size_t>(ranks)), cursors_(static_cast<std::size_t>(ranks)),
        direct_(static_cast<std::size_t>(ranks)) {}

  /// Allocates the memory that a part of this call needs in advance, so that the thread that does a part
  /// allocates nothing in steady state.
  void prepare(const CollectiveCall& call) {
    if (reduces(call.operation))
      reduction_.begin(call.element, call.reduce_op, call.order);
  }

  /// Does the part of `rank`.
  void run(const ThreadSlot* slots, int rank) {
    slots_ = slots;
    rank_ = rank;
    switch (own().operation) {
    case Operation::broadcast:
      broadcast();
      break;
    case Operation::all_reduce:
      all_reduce();
      break;
    case Operation::all_gather:
      all_gather();
      break;
    case Operation::reduce_scatter:
      reduce_scatter();
      break;
    case Operation::all_to_all:
      all_to_all();
      break;
    default:
      break;
    }
  }

private:
  [[nodiscard]] const CollectiveCall& own() const noexcept { return *slots_[rank_].call; }
  [[nodiscard]] const std::byte* in(int rank) const noexcept {
    return reinterpret_cast<const std::byte*>(slots_[rank].in.begin);
  }
  [[nodiscard]] std::byte* out(int rank) const noexcept {
    return reinterpret_cast<std::byte*>(slots_[rank].out.begin);
  }
  /// The rank `step` places after this one: ranks start at different peers, so that they do not all read from
  /// the same one.
  [[nodiscard]] int after(int step) const noexcept { return (rank_ + step) % ranks_; }

  void broadcast() noexcept {
    const std::byte* const from = in(own().root);
    if (out(rank_) != from)
      copy_run(out(rank_), from, own().count * size_of(own().element), false);
  }

  void all_reduce() {
    const std::size_t count = own().count;
    const std::size_t bytes = count * size_of(own().element);
    reduction_.begin(own().element, own().reduce_op, own().order);
    bool shared = false;
    for (int s = 0; s < ranks_; ++s)
      shared = shared || in(s) == out(s);
    const std::size_t line = line_bytes / size_of(own().element);
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::size_t slice = (count + ranks * line - 1) / (ranks * line) * line;
    const std::size_t begin = std::min(count, slice * static_cast<std::size_t>(rank_));
    const bool stream = !shared && 2 * ranks * bytes > last_level_cache_bytes();
    const std::size_t end = std::min(count, begin + slice);
    for (int s = 0; s < ranks_; ++s) {
      ins_[index(s)] = in(s) + begin * size_of(own().element);
      outs_[index(s)] = out(s) + begin * size_of(own().element);
    }
    reduction_.run(ins_.data(), outs_.data(), ranks_, end - begin, stream);
    if (stream)
      finish_streaming();
  }

  void reduce_scatter() {
    reduction_.begin(own().element, own().reduce_op, own().order);
    const std::size_t bytes = size_of(own().element);
    for (int s = 0; s < ranks_; ++s)
      cursors_[index(s)] = StridedCursor(slots_[s].in_block(rank_, own().count));
    for (std::size_t done = 0; done < own().count;) {
      std::size_t length = own().count - done;
      for (const StridedCursor& cursor : cursors_)
        length = std::min(length, cursor.left());
      for (int s = 0; s < ranks_; ++s) {
        ins_[index(s)] = in(s) + cursors_[index(s)].position() * bytes;
        cursors_[index(s)].advance(length);
      }
      outs_[0] = out(rank_) + done * bytes;
      reduction_.run(ins_.data(), outs_.data(), 1, length, false);
      done += length;
    }
  }

  void all_gather() {
    const std::size_t bytes = size_of(own().element);
    const std::size_t whole = blocks_end(own().out_blocks, own().count, ranks_) * bytes;
    if (2 * whole * index(ranks_) > last_level_cache_bytes()) {
      spread(bytes);
      return;
    }
    for (int step = 0; step < ranks_; ++step) {
      const int peer = after(step);
      if (peer == rank_ && in_place(own(), rank_))
        continue;
      const StridedBlock block = own().out_block(peer);
      copy_block(out(rank_), block, in(peer), contiguous_block(0, block.count()), bytes, false);
    }
  }

  /// Reads this rank's block once and writes it to every output with non-temporal stores.
  void spread(std::size_t bytes) {
    int targets = 0;
    bool runs = true;
    for (int s = 0; s < ranks_; ++s) {
      const StridedBlock block = slots_[s].out_block(rank_, own().count);
      runs = runs && block.contiguous();
      std::byte* const to = out(s) + block.offset * bytes;
      if (to != in(rank_))
        outs_[index(targets++)] = to;
    }
    if (runs) {
      copy_to_all(outs_.data(), targets, in(rank_), own().count * bytes);
    } else {
      for (int step = 0; step < ranks_; ++step)
        copy_block(out(after(step)), slots_[after(step)].out_block(rank_, own().count), in(rank_),
                   contiguous_block(0, own().count), bytes, true);
    }
    finish_streaming();
  }

  void all_to_all() noexcept {
    if (DirectExchange* const direct = slots_[rank_].extras.direct) {
      for (int s = 0; s < ranks_; ++s)
        direct_[index(s)] = slots_[s].extras.direct;
      return direct->run(direct_);
    }
    for (int step = 0; step < ranks_; ++step) {
      const int peer = after(step);
      const StridedBlock block = own().out_block(peer);
      copy_block(out(rank_), block, in(peer), slots_[peer].in_block(rank_, block.count()),
                 size_of(own().element), false);
    }
  }

  static constexpr std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

  int rank_ = 0;
  int ranks_;
  const ThreadSlot* slots_ = nullptr;
  NestedReduction reduction_;
  std::vector<const void*> ins_;
  std::vector<void*> outs_;
  std::vector<StridedCursor> cursors_;
  std::vector<DirectExchange*> direct_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
