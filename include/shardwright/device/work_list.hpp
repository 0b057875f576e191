// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Builds one work list for the device from the calls of all ranks of a collective.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/threads/slot.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/device/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The work list of a collective; its memory is reused for the next.
///
/// Devices combine in the order of the host: one level in rank order, or the levels of the call.
class PeerWorkList {
public:
  /// Builds the list for a call on which all ranks agree; false if nothing has to move.
  [[nodiscard]] bool build(const ThreadSlot* slots, int ranks) {
    slots_ = slots;
    ranks_ = static_cast<unsigned>(ranks);
    const CollectiveCall& call = *slots[0].call;
    begin(call);
    switch (call.operation) {
    case Operation::broadcast:
      shape(1, 1, ranks_);
      count(call.count);
      add(slots[call.root].in, contiguous_block(0, call.count));
      each_rank([&](unsigned r) { add_out(r, contiguous_block(0, call.count)); });
      break;
    case Operation::all_reduce:
      shape(1, ranks_, ranks_);
      count(call.count);
      each_rank([&](unsigned r) { add(slots[r].in, contiguous_block(0, call.count)); });
      each_rank([&](unsigned r) { add_out(r, contiguous_block(0, call.count)); });
      break;
    case Operation::all_gather:
      shape(ranks_, 1, ranks_);
      each_rank([&](unsigned b) {
        const std::size_t own = slots[b].call->count;
        count(own);
        add(slots[b].in, contiguous_block(0, own));
        each_rank([&](unsigned r) { add_out(r, slots[r].call->out_block(static_cast<int>(b))); });
      });
      break;
    case Operation::reduce_scatter:
      shape(ranks_, ranks_, 1);
      each_rank([&](unsigned b) {
        const std::size_t own = slots[b].call->count;
        count(own);
        each_rank([&](unsigned r) { add(slots[r].in, slots[r].in_block(static_cast<int>(b), own)); });
        add_out(b, contiguous_block(0, own));
      });
      break;
    case Operation::all_to_all:
      shape(ranks_ * ranks_, 1, 1);
      each_rank([&](unsigned from) {
        each_rank([&](unsigned to) {
          const StridedBlock block = slots[to].call->out_block(static_cast<int>(from));
          count(block.count());
          add(slots[from].in, slots[from].call->in_block(static_cast<int>(to)));
          add_out(to, block);
        });
      });
      break;
    default:
      return false;
    }
    set_levels(call.order);
    align();
    return writes_ && largest_ > 0;
  }

  /// Entries of the list, which are passed as kernel arguments if there is room.
  [[nodiscard]] const std::vector<PeerEntry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool fits() const noexcept { return entries_.size() <= PeerWork::inline_entries; }
  /// The number of entries in the longest list for this many ranks, that of an all-to-all.
  [[nodiscard]] static constexpr std::size_t most_entries(std::size_t ranks) noexcept {
    return 3 * ranks * ranks;
  }

  /// Calls `launch(kernel, blocks, tiles)` once with the kernel that the call needs; `table` holds entries
  /// that do not fit into arguments.
  template <class Launch> void launch(const std::byte* table, Launch launch) {
    work_.table = reinterpret_cast<const PeerEntry*>(table);
    // Arguments name no memory of earlier calls, which may have been freed.
    const std::size_t passed = table == nullptr ? entries_.size() : 0;
    std::copy_n(entries_.begin(), passed, work_.entries);
    for (std::size_t i = passed; i < passed_; ++i)
      work_.entries[i] = {};
    passed_ = passed;
    if (!reduction_)
      return with_vector_bytes(vector_bytes_, [&]<unsigned vector_bytes>() {
        launch_kernel<PeerCopyKernel<vector_bytes>>(launch, vector_bytes, bytes_);
      });
    with_element(element_,
                 [&]<class Element>(std::type_identity<Element>) { launch_reduction<Element>(launch); });
  }

private:
  void begin(const CollectiveCall& call) {
    reduction_ = reduces(call.operation) && ranks_ > 1;
    element_ = call.element;
    // The parts of a complex element are summed like neighbouring real ones.
    parts_ = reduction_ ? parts_of(call.element) : 1;
    bytes_ = size_of(call.element) / parts_;
    entries_.clear();
    addresses_ = 0;
    largest_ = 0;
    writes_ = false;
    work_.op = call.reduce_op;
  }
  template <class Add> void each_rank(Add add) {
    for (unsigned r = 0; r < ranks_; ++r)
      add(r);
  }
  void shape(unsigned blocks, unsigned ins, unsigned outs) {
    work_.blocks = blocks;
    work_.ins = reduction_ ? ins : 1;
    work_.outs = outs;
  }
  void count(std::size_t elements) {
    entries_.push_back({nullptr, elements * parts_, 0});
    largest_ = std::max(largest_, elements * parts_);
  }
  void add(const ByteRange& buffer, const StridedBlock& block) {
    PeerEntry entry;
    const std::uintptr_t begin = buffer.begin + block.offset * parts_ * bytes_;
    entry.data = reinterpret_cast<std::byte*>(begin);
    if (block.count() > 0)
      addresses_ |= begin;
    if (block.count() > 0 && !block.contiguous()) {
      entry.row_length = block.row_length * parts_;
      entry.row_stride = block.row_stride * parts_;
      addresses_ |= (entry.row_length | entry.row_stride) * bytes_;
    }
    input_ = entry.data;
    entries_.push_back(entry);
  }
  /// A copy onto itself is skipped.
  void add_out(unsigned r, const StridedBlock& block) {
    const std::byte* const input = input_;
    add(slots_[r].out, block);
    input_ = input;
    if (!reduction_ && entries_.back().data == input)
      entries_.back().data = nullptr;
    else
      writes_ = true;
  }

  void set_levels(const ReductionOrder& order) {
    work_.depth = 0;
    if (!reduction_)
      return;
    for (int level = 0; level < order.count; ++level) {
      const auto [extent, stride] = order.levels[static_cast<std::size_t>(level)];
      if (extent > 1)
        work_.levels[work_.depth++] = {extent, stride};
    }
    if (work_.depth <= 1)
      work_.depth = 0;
    if (work_.depth == 0 && !sums())
      work_.levels[work_.depth++] = {static_cast<int>(ranks_), 1};
  }
  [[nodiscard]] bool sums() const noexcept {
    return work_.op == ReduceOp::sum || work_.op == ReduceOp::average;
  }
  /// The usual case: a gradient summed over two axes that were merged.
  [[nodiscard]] bool sums_in_two_levels() const noexcept {
    return work_.depth == 2 && sums() && is_rounded(element_);
  }

  /// Rows in units of the vectors that all sides support.
  void align() {
    vector_bytes_ = 16;
    while (addresses_ % vector_bytes_ != 0)
      vector_bytes_ /= 2;
    if (reduction_ && (vector_bytes_ != 16 || (work_.depth > 0 && !sums_in_two_levels())))
      vector_bytes_ = bytes_;
    const std::size_t sides = work_.ins + work_.outs;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      PeerEntry& entry = entries_[i];
      if (i % (1 + sides) == 0) {
        entry.row_length *= reduction_ ? 1 : bytes_;
      } else {
        entry.row_length = entry.row_length * bytes_ / vector_bytes_;
        entry.row_stride = entry.row_stride * bytes_ / vector_bytes_;
      }
    }
  }

  [[nodiscard]] std::uint64_t tiles(std::size_t per_tile, std::size_t counted) const noexcept {
    return (largest_ * counted + per_tile - 1) / per_tile;
  }
  template <class Kernel, class Launch>
  void launch_kernel(Launch& launch, std::size_t vector, std::size_t counted) {
    launch(Kernel{work_}, work_.blocks, tiles(vector * peer_lanes * Kernel::unroll, counted));
  }
  template <class Element, class Launch> void launch_reduction(Launch& launch) {
    constexpr unsigned width = 16 / sizeof(Element);
    if constexpr (RealElement<Element>)
      if (sums_in_two_levels() && vector_bytes_ == 16)
        return launch_kernel<PeerSumKernel<Element, width, true>>(launch, width, 1);
    if (work_.depth > 0)
      return launch_kernel<PeerReduceKernel<Element>>(launch, 1, 1);
    if (vector_bytes_ == 16)
      return launch_kernel<PeerSumKernel<Element, width>>(launch, width, 1);
    return launch_kernel<PeerSumKernel<Element, 1>>(launch, 1, 1);
  }

  const ThreadSlot* slots_ = nullptr;
  unsigned ranks_ = 0;
  bool reduction_ = false;
  bool writes_ = false;
  ElementType element_ = ElementType::uint8;
  std::size_t parts_ = 1;
  std::size_t bytes_ = 1;
  std::size_t vector_bytes_ = 16;
  std::size_t largest_ = 0;      // elements of the largest block
  std::uintptr_t addresses_ = 0; // all addresses, rows and strides in bytes, or-ed together
  const std::byte* input_ = nullptr;
  std::vector<PeerEntry> entries_;
  std::size_t passed_ = 0; // entries in the arguments of the last launch
  PeerWork work_;
};

/// Launches a work list on a stream; one that is too long goes through the table, which the device then
/// reads.
/// @return whether it does.
template <class Runtime>
bool launch_work(Runtime& runtime, typename Runtime::Stream& stream, PeerWorkList& work,
                 typename Runtime::Table* table) {
  const std::byte* entries = nullptr;
  if (!work.fits()) {
    const std::size_t bytes = work.entries().size() * sizeof(PeerEntry);
    std::memcpy(table->host(), work.entries().data(), bytes);
    runtime.upload(stream, *table, bytes);
    entries = table->device();
  }
  work.launch(entries, [&](const auto& kernel, unsigned blocks, std::uint64_t tiles) {
    runtime.launch(stream, kernel, blocks, tiles);
  });
  return entries != nullptr;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
