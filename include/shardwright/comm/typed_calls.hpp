// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts typed ranges to a CollectiveCall, with the checks that need the sizes of the ranges.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/error.hpp>

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Range>
using element_of = std::remove_reference_t<decltype(*std::data(std::declval<Range&>()))>;

} // namespace detail

/// @brief Contiguous elements that a collective reads: std::span, std::vector, std::array.
template <class Range>
concept ElementRange = requires(Range& range) {
  std::data(range);
  std::size(range);
}
&&CollectiveElement<detail::element_of<Range>>;

/// @brief Contiguous elements that a collective writes.
template <class Range>
concept MutableElementRange = ElementRange<Range> && !std::is_const_v<detail::element_of<Range>>;

/// @brief Consecutive blocks from counts: the argument of an uneven call.
template <class Range> [[nodiscard]] std::vector<StridedBlock> packed_blocks(const Range& counts) {
  std::vector<StridedBlock> blocks;
  blocks.reserve(std::size(counts));
  std::size_t offset = 0;
  for (const auto count : counts) {
    blocks.push_back(contiguous_block(offset, static_cast<std::size_t>(count)));
    offset += static_cast<std::size_t>(count);
  }
  return blocks;
}

namespace detail {

/// Type-erased elements, so that the checks below are compiled once.
struct Elements {
  void* data = nullptr;
  std::size_t size = 0;
  ElementType type = ElementType::uint8;

  template <class Range> static Elements of(Range& range) {
    using E = element_of<Range>;
    return {const_cast<void*>(static_cast<const void*>(std::data(range))), std::size(range),
            element_type_of<E>()};
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset * size_of(type);
  }
};

/// Rank and group of the caller; the name is only read when an error is built.
template <class Self>
[[noreturn]] void reject(const Self& self, Operation operation, const SourceLocation& where,
                         const std::string& sentence) {
  throw InvalidArgument(
      std::string(name_of(operation)) + ": " + sentence,
      {self.world_rank(self.rank()), self.name(), std::string(name_of(operation)), 0, {}, where});
}

template <class Self>
void need_same_type(const Self& self, Operation operation, const Elements& in, const Elements& out,
                    const SourceLocation& where) {
  if (in.type == out.type)
    return;
  reject(self, operation, where,
         "input and output must have the same element type, but they are " + std::string(name_of(in.type)) +
             " and " + std::string(name_of(out.type)) + " (convert one of them first)");
}

template <class Self>
void need_size(const Self& self, Operation operation, const char* what, std::size_t size, std::size_t wanted,
               const SourceLocation& where) {
  if (size == wanted)
    return;
  reject(self, operation, where,
         std::string("the ") + what + " must hold " + std::to_string(wanted) + " elements, but it holds " +
             std::to_string(size) + " (pass a span of exactly the elements meant)");
}

/// An average of integers would be rounded, differently from a sum that is divided as a real number.
template <class Self>
void need_real_average(const Self& self, Operation operation, ElementType type, ReduceOp op,
                       const SourceLocation& where) {
  const bool real = type == ElementType::float32 || type == ElementType::float64 ||
                    type == ElementType::bfloat16 || type == ElementType::float16;
  if (op == ReduceOp::average && !real)
    reject(self, operation, where,
           "an average must be of floating-point elements, but these are " + std::string(name_of(type)) +
               " (reduce them with ReduceOp::sum, and divide the sum)");
}

/// One block per rank, each inside the buffer.
template <class Self>
void need_blocks(const Self& self, Operation operation, const char* what,
                 std::span<const StridedBlock> blocks, std::size_t size, const SourceLocation& where) {
  const auto ranks = static_cast<std::size_t>(self.size());
  if (blocks.size() != ranks)
    reject(self, operation, where,
           std::string("the blocks of the ") + what + " must be one for each of the " +
               std::to_string(ranks) + " ranks, but " + std::to_string(blocks.size()) +
               " were given (give an empty block to a rank without data)");
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (blocks[rank].end() > size)
      reject(self, operation, where,
             std::string("block ") + std::to_string(rank) + " of the " + what +
                 " must end inside the buffer, but it ends at " + std::to_string(blocks[rank].end()) +
                 " of " + std::to_string(size) + " elements (check its offset, rows and stride)");
}

template <class Self>
CollectiveCall all_reduce_call(const Self& self, Elements in, Elements out, ReduceOp op,
                               const ReductionOrder& order, const SourceLocation& where) {
  need_same_type(self, Operation::all_reduce, in, out, where);
  need_real_average(self, Operation::all_reduce, in.type, op, where);
  need_size(self, Operation::all_reduce, "output", out.size, in.size, where);
  CollectiveCall call{
      .operation = Operation::all_reduce, .reduce_op = op, .element = in.type, .count = in.size};
  call.in = in.data;
  call.out = out.data;
  call.order = order;
  call.where = where;
  return call;
}

template <class Self>
CollectiveCall all_gather_call(const Self& self, Elements in, Elements out,
                               std::span<const StridedBlock> blocks, const SourceLocation& where) {
  constexpr auto operation = Operation::all_gather;
  need_same_type(self, operation, in, out, where);
  if (blocks.empty()) {
    need_size(self, operation, "output", out.size, in.size * static_cast<std::size_t>(self.size()), where);
  } else {
    need_blocks(self, operation, "output", blocks, out.size, where);
    need_size(self, operation, "input", in.size, blocks[static_cast<std::size_t>(self.rank())].count(),
              where);
  }
  CollectiveCall call{.operation = operation, .element = in.type, .count = in.size};
  call.in = in.data;
  call.out = out.data;
  call.out_blocks = blocks;
  call.where = where;
  return call;
}

template <class Self>
CollectiveCall reduce_scatter_call(const Self& self, Elements in, Elements out,
                                   std::span<const StridedBlock> blocks, ReduceOp op,
                                   const ReductionOrder& order, const SourceLocation& where) {
  constexpr auto operation = Operation::reduce_scatter;
  need_same_type(self, operation, in, out, where);
  need_real_average(self, operation, in.type, op, where);
  if (blocks.empty()) {
    need_size(self, operation, "input", in.size, out.size * static_cast<std::size_t>(self.size()), where);
  } else {
    need_blocks(self, operation, "input", blocks, in.size, where);
    need_size(self, operation, "output", out.size, blocks[static_cast<std::size_t>(self.rank())].count(),
              where);
  }
  CollectiveCall call{.operation = operation, .reduce_op = op, .element = in.type, .count = out.size};
  call.in = in.data;
  call.out = out.data;
  call.in_blocks = blocks;
  call.order = order;
  call.where = where;
  return call;
}

/// This rank's block of a buffer that is used in place.
template <class Self>
Elements own_block(const Self& self, Operation operation, Elements whole,
                   std::span<const StridedBlock> blocks, const SourceLocation& where) {
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto rank = static_cast<std::size_t>(self.rank());
  if (blocks.empty()) {
    if (whole.size % ranks != 0)
      reject(self, operation, where,
             "the " + std::to_string(whole.size) + " elements must be divisible by the " +
                 std::to_string(ranks) + " ranks (pass blocks for an uneven call)");
    return {whole.at(rank * (whole.size / ranks)), whole.size / ranks, whole.type};
  }
  need_blocks(self, operation, "buffer", blocks, whole.size, where);
  if (!blocks[rank].contiguous())
    reject(
        self, operation, where,
        "this rank's own block must be contiguous for an in-place call (use the form with an input and an output)");
  return {whole.at(blocks[rank].offset), blocks[rank].count(), whole.type};
}

template <class Self>
CollectiveCall all_to_all_call(const Self& self, Elements in, Elements out,
                               std::span<const StridedBlock> in_blocks,
                               std::span<const StridedBlock> out_blocks, const SourceLocation& where) {
  constexpr auto operation = Operation::all_to_all;
  const auto ranks = static_cast<std::size_t>(self.size());
  need_same_type(self, operation, in, out, where);
  CollectiveCall call{.operation = operation, .element = in.type};
  if (in_blocks.empty() && out_blocks.empty()) {
    need_size(self, operation, "output", out.size, in.size, where);
    if (in.size % ranks != 0)
      reject(self, operation, where,
             "the " + std::to_string(in.size) + " elements must be divisible by the " +
                 std::to_string(ranks) + " ranks (pass blocks for an uneven call)");
    call.count = in.size / ranks;
  } else {
    need_blocks(self, operation, "input", in_blocks, in.size, where);
    need_blocks(self, operation, "output", out_blocks, out.size, where);
  }
  call.in = in.data;
  call.out = out.data;
  call.in_blocks = in_blocks;
  call.out_blocks = out_blocks;
  call.where = where;
  return call;
}

inline CollectiveCall broadcast_call(Elements buffer, int root, const SourceLocation& where) {
  CollectiveCall call{
      .operation = Operation::broadcast, .element = buffer.type, .root = root, .count = buffer.size};
  call.in = buffer.data;
  call.out = buffer.data;
  call.where = where;
  return call;
}

inline CollectiveCall message_call(Operation operation, Elements buffer, int peer, int tag,
                                   const SourceLocation& where) {
  CollectiveCall call{
      .operation = operation, .element = buffer.type, .root = peer, .tag = tag, .count = buffer.size};
  if (operation == Operation::send)
    call.in = buffer.data;
  else
    call.out = buffer.data;
  call.where = where;
  return call;
}

inline CollectiveCall barrier_call(const SourceLocation& where) {
  CollectiveCall call;
  call.where = where;
  return call;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
