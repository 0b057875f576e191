// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator concept and the typed operations that every communicator has.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/memory_kind.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/typed_calls.hpp>
#include <shardwright/core/error.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An ordered group of ranks that executes calls: blocking by `run`, asynchronously by `start`.
///
/// Calls on one communicator complete in the order in which they were issued, and every rank issues the same
/// calls in the same order. Every call returns or throws a typed error within the communicator's deadline. A
/// communicator is a handle: copies are cheap and refer to the same group. `split` with a negative colour
/// gives a handle without a group.
template <class C>
concept Communicator = requires(C comm, const C const_comm, const CollectiveCall call, int number,
                                SourceLocation where) {
  { const_comm.rank() } -> std::same_as<int>;
  { const_comm.size() } -> std::same_as<int>;
  { const_comm.world_rank(number) } -> std::same_as<int>;
  { const_comm.name() } -> std::convertible_to<std::string>;
  { const_comm.deadline() } -> std::same_as<std::chrono::nanoseconds>;
  { const_comm.valid() } -> std::same_as<bool>;
  comm.run(call);
  { comm.start(call) } -> std::same_as<Pending>;
  { comm.split(number, number, std::string(), where) } -> std::same_as<C>;
  comm.abort(std::string());
};

/// @brief The typed operations, written once on top of `run` and `start` of the derived communicator.
///
/// Ranges are spans, vectors or arrays of a CollectiveElement and contain exactly the elements to be moved.
/// Each operation has a blocking form and an `_async` form whose buffers stay untouched until the Pending is
/// waited for. Even forms cut the whole into equal blocks, one per rank; block forms place each rank's block
/// by a StridedBlock; count forms take packed blocks.
/// @throws InvalidArgument for sizes that disagree; CollectiveMismatch, PeerFailed, DeadlineExceeded and
/// LifecycleError as the transport detects them.
template <class Self> class TypedOperations {
  using Blocks = std::span<const StridedBlock>;
  using Counts = std::span<const std::size_t>;
  using Where = SourceLocation;

public:
  /// @brief out[i] = op over ranks of in[i], in the fixed order; `in` and `out` may be the same elements.
  void all_reduce(const ElementRange auto& in, MutableElementRange auto&& out, ReduceOp op = ReduceOp::sum,
                  const ReductionOrder& order = {}, Where where = Where::current()) {
    self().run(detail::all_reduce_call(self(), view(in), view(out), op, order, where));
  }
  /// @brief The asynchronous form of all_reduce.
  Pending all_reduce_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                           Where where = Where::current()) {
    return self().start(detail::all_reduce_call(self(), view(in), view(out), op, order, where));
  }
  /// @brief all_reduce that overwrites its input.
  void all_reduce_in_place(auto&& data, ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                           Where where = Where::current()) {
    self().run(detail::all_reduce_call(self(), writable(data), writable(data), op, order, where));
  }
  /// @brief The asynchronous form of all_reduce_in_place.
  Pending all_reduce_in_place_async(auto&& data, ReduceOp op = ReduceOp::sum,
                                    const ReductionOrder& order = {}, Where where = Where::current()) {
    return self().start(detail::all_reduce_call(self(), writable(data), writable(data), op, order, where));
  }

  /// @brief Block r of `out` = `in` of rank r, equal blocks.
  void all_gather(const ElementRange auto& in, MutableElementRange auto&& out,
                  Where where = Where::current()) {
    self().run(detail::all_gather_call(self(), view(in), view(out), {}, where));
  }
  /// @brief Block r of `out`, placed by `blocks[r]`, = `in` of rank r.
  void all_gather(const ElementRange auto& in, MutableElementRange auto&& out, Blocks blocks,
                  Where where = Where::current()) {
    self().run(detail::all_gather_call(self(), view(in), view(out), blocks, where));
  }
  /// @brief Packed blocks of `counts[r]` elements.
  void all_gather(const ElementRange auto& in, MutableElementRange auto&& out, Counts counts,
                  Where where = Where::current()) {
    self().run(detail::all_gather_call(self(), view(in), view(out), packed_blocks(counts), where));
  }
  /// @brief The asynchronous form of all_gather, equal blocks.
  Pending all_gather_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           Where where = Where::current()) {
    return self().start(detail::all_gather_call(self(), view(in), view(out), {}, where));
  }
  /// @brief The asynchronous form of all_gather with blocks.
  Pending all_gather_async(const ElementRange auto& in, MutableElementRange auto&& out, Blocks blocks,
                           Where where = Where::current()) {
    return self().start(detail::all_gather_call(self(), view(in), view(out), blocks, where));
  }
  /// @brief The asynchronous form of all_gather with counts.
  Pending all_gather_async(const ElementRange auto& in, MutableElementRange auto&& out, Counts counts,
                           Where where = Where::current()) {
    return self().start(detail::all_gather_call(self(), view(in), view(out), packed_blocks(counts), where));
  }
  /// @brief all_gather with this rank's block already in place in `data`; without `blocks`, the blocks are
  /// equal.
  void all_gather_in_place(auto&& data, Blocks blocks = {}, Where where = Where::current()) {
    self().run(gather_in_place(writable(data), blocks, where));
  }
  /// @brief The asynchronous form of all_gather_in_place.
  Pending all_gather_in_place_async(auto&& data, Blocks blocks = {}, Where where = Where::current()) {
    return self().start(gather_in_place(writable(data), blocks, where));
  }

  /// @brief `out` = op over ranks of this rank's block of `in`, equal blocks, in the fixed order.
  void reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    self().run(detail::reduce_scatter_call(self(), view(in), view(out), {}, op, order, where));
  }
  /// @brief Block r of `in`, placed by `blocks[r]`, goes to rank r.
  void reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out, Blocks blocks,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    self().run(detail::reduce_scatter_call(self(), view(in), view(out), blocks, op, order, where));
  }
  /// @brief Packed blocks of `counts[r]` elements.
  void reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out, Counts counts,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    self().run(
        detail::reduce_scatter_call(self(), view(in), view(out), packed_blocks(counts), op, order, where));
  }
  /// @brief The asynchronous form of reduce_scatter, equal blocks.
  Pending reduce_scatter_async(const ElementRange auto& in, MutableElementRange auto&& out,
                               ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                               Where where = Where::current()) {
    return self().start(detail::reduce_scatter_call(self(), view(in), view(out), {}, op, order, where));
  }
  /// @brief The asynchronous form of reduce_scatter with blocks.
  Pending reduce_scatter_async(const ElementRange auto& in, MutableElementRange auto&& out, Blocks blocks,
                               ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                               Where where = Where::current()) {
    return self().start(detail::reduce_scatter_call(self(), view(in), view(out), blocks, op, order, where));
  }
  /// @brief The asynchronous form of reduce_scatter with counts.
  Pending reduce_scatter_async(const ElementRange auto& in, MutableElementRange auto&& out, Counts counts,
                               ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                               Where where = Where::current()) {
    return self().start(
        detail::reduce_scatter_call(self(), view(in), view(out), packed_blocks(counts), op, order, where));
  }
  /// @brief reduce_scatter whose result replaces this rank's block of `data`; without `blocks`, the blocks
  /// are equal.
  void reduce_scatter_in_place(auto&& data, Blocks blocks = {}, ReduceOp op = ReduceOp::sum,
                               const ReductionOrder& order = {}, Where where = Where::current()) {
    self().run(scatter_in_place(writable(data), blocks, op, order, where));
  }
  /// @brief The asynchronous form of reduce_scatter_in_place.
  Pending reduce_scatter_in_place_async(auto&& data, Blocks blocks = {}, ReduceOp op = ReduceOp::sum,
                                        const ReductionOrder& order = {}, Where where = Where::current()) {
    return self().start(scatter_in_place(writable(data), blocks, op, order, where));
  }

  /// @brief Block r of `out` = this rank's block of `in` of rank r, equal blocks.
  void all_to_all(const ElementRange auto& in, MutableElementRange auto&& out,
                  Where where = Where::current()) {
    self().run(detail::all_to_all_call(self(), view(in), view(out), {}, {}, where));
  }
  /// @brief `in_blocks[r]` goes to rank r; the data from rank r goes to `out_blocks[r]`.
  void all_to_all(const ElementRange auto& in, MutableElementRange auto&& out, Blocks in_blocks,
                  Blocks out_blocks, Where where = Where::current()) {
    self().run(detail::all_to_all_call(self(), view(in), view(out), in_blocks, out_blocks, where));
  }
  /// @brief Packed blocks of `in_counts[r]` and `out_counts[r]` elements.
  void all_to_all(const ElementRange auto& in, MutableElementRange auto&& out, Counts in_counts,
                  Counts out_counts, Where where = Where::current()) {
    self().run(detail::all_to_all_call(self(), view(in), view(out), packed_blocks(in_counts),
                                       packed_blocks(out_counts), where));
  }
  /// @brief The asynchronous form of all_to_all, equal blocks.
  Pending all_to_all_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           Where where = Where::current()) {
    return self().start(detail::all_to_all_call(self(), view(in), view(out), {}, {}, where));
  }
  /// @brief The asynchronous form of all_to_all with blocks.
  Pending all_to_all_async(const ElementRange auto& in, MutableElementRange auto&& out, Blocks in_blocks,
                           Blocks out_blocks, Where where = Where::current()) {
    return self().start(detail::all_to_all_call(self(), view(in), view(out), in_blocks, out_blocks, where));
  }
  /// @brief The asynchronous form of all_to_all with counts.
  Pending all_to_all_async(const ElementRange auto& in, MutableElementRange auto&& out, Counts in_counts,
                           Counts out_counts, Where where = Where::current()) {
    return self().start(detail::all_to_all_call(self(), view(in), view(out), packed_blocks(in_counts),
                                                packed_blocks(out_counts), where));
  }

  /// @brief `data` of every rank = `data` of the root.
  void broadcast(MutableElementRange auto&& data, int root, Where where = Where::current()) {
    self().run(detail::broadcast_call(view(data), root, where));
  }
  /// @brief The asynchronous form of broadcast.
  Pending broadcast_async(MutableElementRange auto&& data, int root, Where where = Where::current()) {
    return self().start(detail::broadcast_call(view(data), root, where));
  }

  /// @brief Returns when every rank of the group has entered.
  void barrier(Where where = Where::current()) { self().run(detail::barrier_call(where)); }
  /// @brief The asynchronous form of barrier.
  Pending barrier_async(Where where = Where::current()) { return self().start(detail::barrier_call(where)); }

  /// @brief Sends `data` to the rank `to` of this group, which receives equally many elements under the same
  /// tag.
  void send(const ElementRange auto& data, int to, int tag = 0, Where where = Where::current()) {
    self().run(detail::message_call(Operation::send, view(data), to, tag, where));
  }
  /// @brief The asynchronous form of send.
  Pending send_async(const ElementRange auto& data, int to, int tag = 0, Where where = Where::current()) {
    return self().start(detail::message_call(Operation::send, view(data), to, tag, where));
  }
  /// @brief Receives into `data` the message that the rank `from` of this group sends under the same tag.
  void receive(MutableElementRange auto&& data, int from, int tag = 0, Where where = Where::current()) {
    self().run(detail::message_call(Operation::receive, view(data), from, tag, where));
  }
  /// @brief The asynchronous form of receive.
  Pending receive_async(MutableElementRange auto&& data, int from, int tag = 0,
                        Where where = Where::current()) {
    return self().start(detail::message_call(Operation::receive, view(data), from, tag, where));
  }

protected:
  ~TypedOperations() = default;

private:
  Self& self() noexcept { return static_cast<Self&>(*this); }

  template <class Range> static detail::Elements view(Range& range) {
    static_assert(
        detail::may_carry<Self, Range>,
        "DeviceCommunicator: the elements must lie in device memory, not in a std::vector or std::array of the host (give a span of the device's memory, or use the host communicator of the group)");
    return detail::Elements::of(range);
  }

  /// Elements that an in-place call overwrites.
  template <class Range> static detail::Elements writable(Range& range) {
    static_assert(
        ElementRange<Range>,
        "In-place collective: the elements must be float, double, bfloat16, float16, bytes, or integers of 4 or 8 bytes, in a span, vector or array (convert them first)");
    static_assert(
        MutableElementRange<Range> || !ElementRange<Range>,
        "In-place collective: the elements must be writable, not a read-only view or handle (give the span, vector or array that owns them, or use the form with an input and an output)");
    if constexpr (MutableElementRange<Range>)
      return view(range);
    else
      return {};
  }

  CollectiveCall gather_in_place(detail::Elements data, Blocks blocks, Where where) {
    return detail::all_gather_call(
        self(), detail::own_block(self(), Operation::all_gather, data, blocks, where), data, blocks, where);
  }
  CollectiveCall scatter_in_place(detail::Elements data, Blocks blocks, ReduceOp op,
                                  const ReductionOrder& order, Where where) {
    return detail::reduce_scatter_call(
        self(), data, detail::own_block(self(), Operation::reduce_scatter, data, blocks, where), blocks, op,
        order, where);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
