// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The typed operations that every communicator has.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/typed_calls.hpp>
#include <shardwright/core/error.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Containers in host memory; spans and views may refer to any memory.
template <class Range> inline constexpr bool is_host_container = std::is_array_v<Range>;
template <class Range> inline constexpr bool is_host_container<const Range> = is_host_container<Range>;
template <class E> inline constexpr bool is_host_container<std::vector<E, std::allocator<E>>> = true;
template <class E, std::size_t size> inline constexpr bool is_host_container<std::array<E, size>> = true;

} // namespace detail

/// @brief The typed operations of a communicator, written once on top of its `run` and `start`.
///
/// A communicator is an ordered group of ranks that executes calls: blocking by `run`, asynchronously by
/// `start`. Calls on one communicator complete in the order in which they were issued, and every rank issues
/// the same calls in the same order. Every call returns or throws a typed error within the communicator's
/// deadline.
///
/// Ranges are spans, vectors or arrays of a CollectiveElement and contain exactly the elements to be moved.
/// Each operation has a blocking form and an `_async` form whose buffers stay untouched until the Pending is
/// waited for. Without blocks, the whole is cut into equal ones, one per rank.
/// @throws InvalidArgument for sizes that disagree; CollectiveMismatch, PeerFailed, DeadlineExceeded and
/// LifecycleError as the transport detects them.
template <class Self> class TypedOperations {
  using Where = SourceLocation;
  using Call = detail::TypedCall<Self>;

public:
  /// @brief out[i] = op over ranks of in[i], in the fixed order; `in` and `out` may be the same elements.
  void all_reduce(const ElementRange auto& in, MutableElementRange auto&& out, ReduceOp op = ReduceOp::sum,
                  const ReductionOrder& order = {}, Where where = Where::current()) {
    self().run(call(Operation::all_reduce, view(in), view(out), where).all_reduce(op, order));
  }
  /// @brief The asynchronous form of all_reduce.
  Pending all_reduce_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                           Where where = Where::current()) {
    return self().start(call(Operation::all_reduce, view(in), view(out), where).all_reduce(op, order));
  }
  /// @brief all_reduce that overwrites its input.
  void all_reduce_in_place(auto&& data, ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                           Where where = Where::current()) {
    self().run(call(Operation::all_reduce, writable(data), writable(data), where).all_reduce(op, order));
  }
  /// @brief The asynchronous form of all_reduce_in_place.
  Pending all_reduce_in_place_async(auto&& data, ReduceOp op = ReduceOp::sum,
                                    const ReductionOrder& order = {}, Where where = Where::current()) {
    return self().start(
        call(Operation::all_reduce, writable(data), writable(data), where).all_reduce(op, order));
  }

  /// @brief Block r of `out` = `in` of rank r.
  void all_gather(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& blocks = {},
                  Where where = Where::current()) {
    self().run(call(Operation::all_gather, view(in), view(out), where).all_gather(blocks.get()));
  }
  /// @brief The asynchronous form of all_gather.
  Pending all_gather_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           const Blocks& blocks = {}, Where where = Where::current()) {
    return self().start(call(Operation::all_gather, view(in), view(out), where).all_gather(blocks.get()));
  }
  /// @brief all_gather with this rank's block already in place in `data`.
  void all_gather_in_place(auto&& data, const Blocks& blocks = {}, Where where = Where::current()) {
    self().run(gather_in_place(writable(data), blocks, where));
  }
  /// @brief The asynchronous form of all_gather_in_place.
  Pending all_gather_in_place_async(auto&& data, const Blocks& blocks = {}, Where where = Where::current()) {
    return self().start(gather_in_place(writable(data), blocks, where));
  }

  /// @brief `out` = op over ranks of this rank's block of `in`, equal blocks, in the fixed order.
  void reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    reduce_scatter(in, out, Blocks(), op, order, where);
  }
  /// @brief The same, where block r of `in` goes to rank r.
  void reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& blocks,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    self().run(
        call(Operation::reduce_scatter, view(in), view(out), where).reduce_scatter(blocks.get(), op, order));
  }
  /// @brief The asynchronous form of reduce_scatter, equal blocks.
  Pending reduce_scatter_async(const ElementRange auto& in, MutableElementRange auto&& out,
                               ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                               Where where = Where::current()) {
    return reduce_scatter_async(in, out, Blocks(), op, order, where);
  }
  /// @brief The asynchronous form of reduce_scatter with blocks.
  Pending reduce_scatter_async(const ElementRange auto& in, MutableElementRange auto&& out,
                               const Blocks& blocks, ReduceOp op = ReduceOp::sum,
                               const ReductionOrder& order = {}, Where where = Where::current()) {
    return self().start(
        call(Operation::reduce_scatter, view(in), view(out), where).reduce_scatter(blocks.get(), op, order));
  }
  /// @brief reduce_scatter whose result replaces this rank's block of `data`.
  void reduce_scatter_in_place(auto&& data, const Blocks& blocks = {}, ReduceOp op = ReduceOp::sum,
                               const ReductionOrder& order = {}, Where where = Where::current()) {
    self().run(scatter_in_place(writable(data), blocks, op, order, where));
  }
  /// @brief The asynchronous form of reduce_scatter_in_place.
  Pending reduce_scatter_in_place_async(auto&& data, const Blocks& blocks = {}, ReduceOp op = ReduceOp::sum,
                                        const ReductionOrder& order = {}, Where where = Where::current()) {
    return self().start(scatter_in_place(writable(data), blocks, op, order, where));
  }

  /// @brief `in_blocks[r]` goes to rank r; the data from rank r goes to `out_blocks[r]`.
  void all_to_all(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& in_blocks = {},
                  const Blocks& out_blocks = {}, Where where = Where::current()) {
    self().run(call(Operation::all_to_all, view(in), view(out), where)
                   .all_to_all(in_blocks.get(), out_blocks.get()));
  }
  /// @brief The asynchronous form of all_to_all.
  Pending all_to_all_async(const ElementRange auto& in, MutableElementRange auto&& out,
                           const Blocks& in_blocks = {}, const Blocks& out_blocks = {},
                           Where where = Where::current()) {
    return self().start(call(Operation::all_to_all, view(in), view(out), where)
                            .all_to_all(in_blocks.get(), out_blocks.get()));
  }

  /// @brief `data` of every rank = `data` of the root.
  void broadcast(MutableElementRange auto&& data, int root, Where where = Where::current()) {
    self().run(detail::call_of(Operation::broadcast, where, view(data), root));
  }
  /// @brief The asynchronous form of broadcast.
  Pending broadcast_async(MutableElementRange auto&& data, int root, Where where = Where::current()) {
    return self().start(detail::call_of(Operation::broadcast, where, view(data), root));
  }

  /// @brief Returns when every rank of the group has entered.
  void barrier(Where where = Where::current()) { self().run(detail::call_of(Operation::barrier, where)); }
  /// @brief The asynchronous form of barrier.
  Pending barrier_async(Where where = Where::current()) {
    return self().start(detail::call_of(Operation::barrier, where));
  }

  /// @brief Sends `data` to the rank `to` of this group, which receives equally many elements under the same
  /// tag.
  void send(const ElementRange auto& data, int to, int tag = 0, Where where = Where::current()) {
    self().run(detail::call_of(Operation::send, where, view(data), to, tag));
  }
  /// @brief The asynchronous form of send.
  Pending send_async(const ElementRange auto& data, int to, int tag = 0, Where where = Where::current()) {
    return self().start(detail::call_of(Operation::send, where, view(data), to, tag));
  }
  /// @brief Receives into `data` the message that the rank `from` of this group sends under the same tag.
  void receive(MutableElementRange auto&& data, int from, int tag = 0, Where where = Where::current()) {
    self().run(detail::call_of(Operation::receive, where, view(data), from, tag));
  }
  /// @brief The asynchronous form of receive.
  Pending receive_async(MutableElementRange auto&& data, int from, int tag = 0,
                        Where where = Where::current()) {
    return self().start(detail::call_of(Operation::receive, where, view(data), from, tag));
  }

protected:
  ~TypedOperations() = default;

private:
  Self& self() noexcept { return static_cast<Self&>(*this); }

  template <class Range> static detail::Elements view(Range& range) {
    static_assert(
        Self::host_memory || !detail::is_host_container<Range>,
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

  [[nodiscard]] Call call(Operation operation, detail::Elements in, detail::Elements out, Where where) {
    return Call(self(), operation, in, out, where);
  }
  [[nodiscard]] CollectiveCall scatter_in_place(detail::Elements data, const Blocks& blocks, ReduceOp op,
                                                const ReductionOrder& order, Where where) {
    return call(Operation::reduce_scatter, data, data, where)
        .in_place(blocks.get())
        .reduce_scatter(blocks.get(), op, order);
  }
  [[nodiscard]] CollectiveCall gather_in_place(detail::Elements data, const Blocks& blocks, Where where) {
    return call(Operation::all_gather, data, data, where).in_place(blocks.get()).all_gather(blocks.get());
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
