// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts typed ranges to a CollectiveCall, with the checks that need the sizes of the ranges.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/error.hpp>

#include <concepts>
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

/// @brief How one side of a call is cut into a block for each rank: equally, if nothing is given, by strided
/// blocks, or by the counts of packed ones. Only for arguments: it refers to the blocks that it is made of.
class Blocks {
public:
  Blocks() = default;
  template <class Range>
  requires std::convertible_to<const Range&, std::span<const StridedBlock>> Blocks(const Range& blocks)
      : blocks_(blocks) {} // NOLINT(google-explicit-constructor)
  template <class Range>
  requires std::convertible_to<const Range&, std::span<const std::size_t>>
  Blocks(const Range& counts) // NOLINT(google-explicit-constructor)
      : packed_(packed_blocks(std::span<const std::size_t>(counts))), blocks_(packed_) {}
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  [[nodiscard]] std::span<const StridedBlock> get() const noexcept { return blocks_; }

private:
  std::vector<StridedBlock> packed_;
  std::span<const StridedBlock> blocks_;
};

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
  [[nodiscard]] Elements part(std::size_t offset, std::size_t count) const {
    return {data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset * size_of(type), count, type};
  }
};

/// Builds a collective of one rank from its input and output, with the checks that need their sizes.
template <class Self> class TypedCall {
public:
  /// @throws InvalidArgument, like the functions below.
  TypedCall(const Self& self, Operation operation, Elements in, Elements out, const SourceLocation& where)
      : self_(self), in_(in), out_(out) {
    call_.operation = operation;
    call_.element = in.type;
    call_.where = where;
    if (in.type != out.type)
      reject("input and output must have the same element type, but they are " +
             std::string(name_of(in.type)) + " and " + std::string(name_of(out.type)) +
             " (convert one of them first)");
  }

  [[nodiscard]] CollectiveCall all_reduce(ReduceOp op, const ReductionOrder& order) {
    reduce_by(op, order);
    need_size("output", out_.size, in_.size);
    return of(in_.size);
  }
  [[nodiscard]] CollectiveCall all_gather(std::span<const StridedBlock> blocks) {
    need_cut("output", out_, "input", in_, blocks);
    call_.out_blocks = blocks;
    return of(in_.size);
  }
  [[nodiscard]] CollectiveCall reduce_scatter(std::span<const StridedBlock> blocks, ReduceOp op,
                                              const ReductionOrder& order) {
    reduce_by(op, order);
    need_cut("input", in_, "output", out_, blocks);
    call_.in_blocks = blocks;
    return of(out_.size);
  }
  [[nodiscard]] CollectiveCall all_to_all(std::span<const StridedBlock> in_blocks,
                                          std::span<const StridedBlock> out_blocks) {
    call_.in_blocks = in_blocks;
    call_.out_blocks = out_blocks;
    if (in_blocks.empty() && out_blocks.empty()) {
      need_size("output", out_.size, in_.size);
      return of(equal_part(in_));
    }
    need_blocks("input", in_blocks, in_.size);
    need_blocks("output", out_blocks, out_.size);
    return of(0);
  }

  /// For a buffer that is both input and output: the smaller side becomes this rank's block of it.
  [[nodiscard]] TypedCall& in_place(std::span<const StridedBlock> blocks) {
    const auto rank = static_cast<std::size_t>(self_.rank());
    Elements& part = call_.operation == Operation::all_gather ? in_ : out_;
    if (blocks.empty()) {
      const std::size_t count = equal_part(part);
      part = part.part(rank * count, count);
      return *this;
    }
    need_blocks("buffer", blocks, part.size);
    if (!blocks[rank].contiguous())
      reject(
          "this rank's own block must be contiguous for an in-place call (use the form with an input and an output)");
    part = part.part(blocks[rank].offset, blocks[rank].count());
    return *this;
  }

private:
  /// Rank and group of the caller; the name is only read when an error is built.
  [[noreturn]] void reject(const std::string& sentence) const {
    const std::string name(name_of(call_.operation));
    throw InvalidArgument(name + ": " + sentence,
                          {self_.world_rank(self_.rank()), self_.name(), name, 0, {}, call_.where});
  }

  [[nodiscard]] CollectiveCall of(std::size_t count) {
    call_.count = count;
    call_.in = in_.data;
    call_.out = out_.data;
    return call_;
  }

  /// An average of integers would be rounded, differently from a sum that is divided as a real number; sums
  /// of real numbers depend on their order.
  void reduce_by(ReduceOp op, const ReductionOrder& order) {
    call_.reduce_op = op;
    call_.order = order;
    const ElementType type = call_.element;
    const bool real = is_rounded(type);
    if (op != ReduceOp::sum && op != ReduceOp::average && is_complex(type))
      reject("a reduction of " + std::string(name_of(type)) + " must be a sum or an average, but it is a " +
             std::string(name_of(op)) +
             " (complex numbers have no order; gather the factors of a product, and multiply them)");
    if (op == ReduceOp::average && !real)
      reject("an average must be of floating-point elements, but these are " + std::string(name_of(type)) +
             " (reduce them with ReduceOp::sum, and divide the sum)");
    if (op == ReduceOp::ordered_sum && real)
      reject("an ordered sum must be of integers, because the rounding of " + std::string(name_of(type)) +
             " depends on the order (reduce them with ReduceOp::sum, or the words of an ExactSum)");
  }

  void need_size(const char* what, std::size_t size, std::size_t wanted) const {
    if (size != wanted)
      reject(std::string("the ") + what + " must hold " + std::to_string(wanted) +
             " elements, but it holds " + std::to_string(size) +
             " (pass a span of exactly the elements meant)");
  }

  [[nodiscard]] std::size_t equal_part(const Elements& whole) const {
    const auto ranks = static_cast<std::size_t>(self_.size());
    if (whole.size % ranks != 0)
      reject("the " + std::to_string(whole.size) + " elements must be divisible by the " +
             std::to_string(ranks) + " ranks (pass blocks for an uneven call)");
    return whole.size / ranks;
  }

  /// One block per rank, each inside the buffer.
  void need_blocks(const char* what, std::span<const StridedBlock> blocks, std::size_t size) const {
    const auto ranks = static_cast<std::size_t>(self_.size());
    if (blocks.size() != ranks)
      reject(std::string("the blocks of the ") + what + " must be one for each of the " +
             std::to_string(ranks) + " ranks, but " + std::to_string(blocks.size()) +
             " were given (give an empty block to a rank without data)");
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (blocks[rank].end() > size)
        reject("block " + std::to_string(rank) + " of the " + what +
               " must end inside the buffer, but it ends at " + std::to_string(blocks[rank].end()) + " of " +
               std::to_string(size) + " elements (check its offset, rows and stride)");
  }

  /// The side with the blocks of all ranks, and the side with this rank's own one.
  void need_cut(const char* whole_name, const Elements& whole, const char* part_name, const Elements& part,
                std::span<const StridedBlock> blocks) const {
    if (blocks.empty())
      return need_size(whole_name, whole.size, part.size * static_cast<std::size_t>(self_.size()));
    need_blocks(whole_name, blocks, whole.size);
    need_size(part_name, part.size, blocks[static_cast<std::size_t>(self_.rank())].count());
  }

  const Self& self_;
  Elements in_;
  Elements out_;
  CollectiveCall call_;
};

/// A call with at most one buffer: a broadcast, message, barrier or split.
[[nodiscard]] inline CollectiveCall call_of(Operation operation, const SourceLocation& where,
                                            Elements buffer = {}, int root = 0, int tag = 0) {
  CollectiveCall call{
      .operation = operation, .element = buffer.type, .root = root, .tag = tag, .count = buffer.size};
  if (operation != Operation::receive)
    call.in = buffer.data;
  if (operation != Operation::send)
    call.out = buffer.data;
  call.where = where;
  return call;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
