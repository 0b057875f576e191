// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Local checks of one rank's call: null, range, block and overlap errors.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Bytes from the first to one past the last byte that a call accesses; empty if it accesses none.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] bool overlaps(const ByteRange& other) const noexcept {
    return !empty() && !other.empty() && begin < other.end && other.begin < end;
  }
};

/// Whether one side of a call is laid out in blocks, one per rank.
[[nodiscard]] constexpr bool has_in_blocks(Operation operation) noexcept {
  return operation == Operation::reduce_scatter || operation == Operation::all_to_all;
}
[[nodiscard]] constexpr bool has_out_blocks(Operation operation) noexcept {
  return operation == Operation::all_gather || operation == Operation::all_to_all;
}
[[nodiscard]] constexpr bool reduces(Operation operation) noexcept {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

[[nodiscard]] constexpr bool sends_or_receives(Operation operation) noexcept {
  return operation == Operation::send || operation == Operation::receive;
}

/// One past the last element of a side that is laid out in blocks.
[[nodiscard]] inline std::size_t blocks_end(std::span<const StridedBlock> blocks, std::size_t count,
                                            int ranks) noexcept {
  if (blocks.empty())
    return count * static_cast<std::size_t>(ranks);
  std::size_t end = 0;
  for (const StridedBlock& block : blocks)
    end = block.end() > end ? block.end() : end;
  return end;
}

/// One past the last element that a rank's call reads.
[[nodiscard]] inline std::size_t in_elements(const CollectiveCall& call, int rank, int ranks) noexcept {
  switch (call.operation) {
  case Operation::barrier:
  case Operation::split:
  case Operation::receive:
    return 0;
  case Operation::broadcast:
    return rank == call.root ? call.count : 0;
  case Operation::all_reduce:
  case Operation::all_gather:
  case Operation::send:
    return call.count;
  case Operation::reduce_scatter:
  case Operation::all_to_all:
    return blocks_end(call.in_blocks, call.count, ranks);
  }
  return 0;
}

/// One past the last element that a rank's call writes.
[[nodiscard]] inline std::size_t out_elements(const CollectiveCall& call, int ranks) noexcept {
  switch (call.operation) {
  case Operation::barrier:
  case Operation::split:
  case Operation::send:
    return 0;
  case Operation::broadcast:
  case Operation::all_reduce:
  case Operation::reduce_scatter:
  case Operation::receive:
    return call.count;
  case Operation::all_gather:
  case Operation::all_to_all:
    return blocks_end(call.out_blocks, call.count, ranks);
  }
  return 0;
}

[[nodiscard]] inline ByteRange byte_range(const void* data, std::size_t elements, ElementType type) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + elements * size_of(type)};
}

/// Whether input and output share a buffer in the way that the operation allows.
[[nodiscard]] inline bool in_place(const CollectiveCall& call, int rank) noexcept {
  const auto* in = static_cast<const std::byte*>(call.in);
  const auto* out = static_cast<const std::byte*>(call.out);
  switch (call.operation) {
  case Operation::broadcast:
  case Operation::all_reduce:
    return in == out;
  case Operation::all_gather: {
    const StridedBlock own = call.out_block(rank);
    return own.contiguous() && out != nullptr && in == out + own.offset * size_of(call.element);
  }
  case Operation::reduce_scatter: {
    const StridedBlock own = call.in_block(rank);
    return own.contiguous() && in != nullptr && out == in + own.offset * size_of(call.element);
  }
  default:
    return false;
  }
}

/// Whether the levels visit every rank of the group exactly once.
[[nodiscard]] constexpr bool covers(const ReductionOrder& order, int ranks) noexcept {
  if (order.count == 0)
    return true;
  if (order.count < 0 || order.count > ReductionOrder::max_levels)
    return false;
  std::int64_t product = 1;
  for (int level = 0; level < order.count; ++level) {
    const auto [extent, stride] = order.levels[static_cast<std::size_t>(level)];
    if (extent < 1 || extent > ranks)
      return false;
    product *= extent;
    if (product > ranks)
      return false;
    std::int64_t below = 1;
    for (int other = 0; other < order.count; ++other) {
      const auto& candidate = order.levels[static_cast<std::size_t>(other)];
      if (candidate.extent > 1 && candidate.stride < stride)
        below *= candidate.extent;
    }
    if (extent > 1 && below != stride)
      return false;
  }
  return product == ranks;
}

/// Whether two blocks of one buffer share an element; exact for equal strides, by their ends otherwise.
[[nodiscard]] constexpr bool share_elements(const StridedBlock& a, const StridedBlock& b) noexcept {
  if (a.count() == 0 || b.count() == 0)
    return false;
  const StridedBlock& low = a.offset <= b.offset ? a : b;
  const StridedBlock& high = a.offset <= b.offset ? b : a;
  if (low.end() <= high.offset)
    return false;
  if (low.rows <= 1 || high.rows <= 1 || low.row_stride != high.row_stride) {
    const StridedBlock& rows = low.rows > 1 ? low : high;
    const StridedBlock& run = low.rows > 1 ? high : low;
    if (rows.rows <= 1 || run.rows > 1)
      return true;
    // A contiguous run shares no element with rows if it fits between two of them.
    if (run.offset < rows.offset)
      return run.end() > rows.offset;
    const std::size_t in_row = (run.offset - rows.offset) % rows.row_stride;
    return in_row < rows.row_length || in_row + run.row_length > rows.row_stride;
  }
  const std::size_t shift = (high.offset - low.offset) % low.row_stride;
  return shift < low.row_length || low.row_stride - shift < high.row_length;
}

/// Throws InvalidArgument with the caller's rank, group, sequence number and line.
template <class Group> class Validator {
public:
  Validator(const CollectiveCall& call, const Group& group, std::uint64_t sequence)
      : call_(call), group_(group), sequence_(sequence) {}

  void check() const {
    if (call_.operation == Operation::barrier || call_.operation == Operation::split)
      return;
    check_root();
    check_blocks("input", call_.in_blocks, has_in_blocks(call_.operation), false);
    check_blocks("output", call_.out_blocks, has_out_blocks(call_.operation), true);
    check_own_block();
    if (reduces(call_.operation) && !covers(call_.order, group_.size()))
      fail(
          "the levels of the reduction order must visit each of the " + std::to_string(group_.size()) +
          " ranks once (their extents multiply to the group's size, each stride is the product of the extents below)");
    check_buffers();
  }

private:
  [[noreturn]] void fail(const std::string& sentence) const {
    throw InvalidArgument(std::string(name_of(call_.operation)) + ": " + sentence,
                          {group_.world_rank(group_.rank()),
                           std::string(group_.name()),
                           std::string(name_of(call_.operation)),
                           sequence_,
                           {},
                           call_.where});
  }

  void check_root() const {
    const bool message = sends_or_receives(call_.operation);
    if (!message && call_.operation != Operation::broadcast)
      return;
    const char* const what = message ? "peer" : "root";
    if (call_.root < 0 || call_.root >= group_.size())
      fail(std::string("the ") + what + " must be at least 0 and below " + std::to_string(group_.size()) +
           ", but it is " + std::to_string(call_.root) + " (name a rank of this group)");
    if (message && call_.root == group_.rank())
      fail("the peer must be another rank, but it is this one (copy the elements instead)");
    if (message && (call_.tag < 0 || call_.tag >= message_tags))
      fail("the tag must be at least 0 and below " + std::to_string(message_tags) + ", but it is " +
           std::to_string(call_.tag) + " (count messages from 0)");
  }

  void check_blocks(const char* what, std::span<const StridedBlock> blocks, bool allowed,
                    bool distinct) const {
    if (blocks.empty())
      return;
    if (!allowed)
      fail(std::string("the ") + what +
           " must have no blocks (this operation uses it as one contiguous block)");
    if (blocks.size() != static_cast<std::size_t>(group_.size()))
      fail(std::string("the blocks of the ") + what + " must be one for each of the " +
           std::to_string(group_.size()) + " ranks, but " + std::to_string(blocks.size()) +
           " were given (give an empty block to a rank without data)");
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i].rows > 1 && blocks[i].row_stride < blocks[i].row_length)
        fail(
            "block " + std::to_string(i) + " of the " + what +
            " must have a row stride of at least its row length, or its rows overlap (check offset, rows and stride)");
    if (distinct)
      check_distinct(what, blocks);
  }

  void check_distinct(const char* what, std::span<const StridedBlock> blocks) const {
    bool ascending = true;
    for (std::size_t i = 1; i < blocks.size() && ascending; ++i)
      ascending = blocks[i - 1].end() <= blocks[i].offset;
    for (std::size_t i = 0; i < blocks.size() && !ascending; ++i)
      for (std::size_t j = i + 1; j < blocks.size(); ++j)
        if (share_elements(blocks[i], blocks[j]))
          fail("blocks " + std::to_string(i) + " and " + std::to_string(j) + " of the " + what +
               " must share no element (check their offsets and strides)");
  }

  void check_own_block() const {
    if (call_.operation == Operation::all_to_all) {
      if (call_.in_blocks.empty() != call_.out_blocks.empty())
        fail("input and output must both have blocks or both have none (give both)");
      return;
    }
    const bool gather = call_.operation == Operation::all_gather;
    if (!gather && call_.operation != Operation::reduce_scatter)
      return;
    const StridedBlock own = gather ? call_.out_block(group_.rank()) : call_.in_block(group_.rank());
    if (own.count() != call_.count)
      fail(std::string("this rank's own block must hold as many elements as the ") +
           (gather ? "input" : "output") + ", but it holds " + std::to_string(own.count()) + " and not " +
           std::to_string(call_.count) + " (give every rank the same blocks)");
  }

  void check_buffers() const {
    constexpr auto limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
    // Only large counts are divided, since a division takes as long as the rest.
    if (call_.count >> 32 != 0 &&
        call_.count > limit / size_of(call_.element) / static_cast<std::size_t>(group_.size()))
      fail("the buffers must be smaller than the address space, but " + std::to_string(call_.count) +
           " elements were given (check for an underflow)");
    const std::size_t ins = in_elements(call_, group_.rank(), group_.size());
    const std::size_t outs = out_elements(call_, group_.size());
    if (ins > 0 && call_.in == nullptr)
      fail("the input must not be null for " + std::to_string(ins) + " elements (pass a buffer)");
    if (outs > 0 && call_.out == nullptr)
      fail("the output must not be null for " + std::to_string(outs) + " elements (pass a buffer)");
    const ByteRange in = byte_range(call_.in, ins, call_.element);
    const ByteRange out = byte_range(call_.out, outs, call_.element);
    if (in.overlaps(out) && !in_place(call_, group_.rank()))
      fail("input and output must not overlap, except in the in-place form (use it, or a second buffer)");
  }

  const CollectiveCall& call_;
  const Group& group_;
  std::uint64_t sequence_;
};

/// Checks a call on the rank that issues it. Group has rank(), size(), world_rank(rank) and name().
template <class Group> void validate(const CollectiveCall& call, const Group& group, std::uint64_t sequence) {
  Validator<Group>(call, group, sequence).check();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
