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

/// @brief The typed operations of a communicator, each written once. `Issuer` derives from it, and its
/// `issue` executes a call on a `Handle`: blocking, or asynchronously with a Pending as result.
///
/// A communicator is an ordered group of ranks that executes calls. Calls on one communicator complete in the
/// order in which they were issued, and every rank issues the same calls in the same order. Every call
/// returns or throws a typed error within the communicator's deadline.
///
/// Ranges are spans, vectors or arrays of a CollectiveElement and contain exactly the elements to be moved;
/// of asynchronous operations they stay untouched until the Pending is waited for. Without blocks, the whole
/// is cut into equal ones, one per rank.
/// @throws InvalidArgument for sizes that disagree; CollectiveMismatch, PeerFailed, DeadlineExceeded and
/// LifecycleError as the transport detects them.
template <class Handle, class Issuer> class TypedOperations {
  using Where = SourceLocation;
  using Call = detail::TypedCall<Handle>;

public:
  /// @brief out[i] = op over ranks of in[i], in the fixed order; `in` and `out` may be the same elements.
  auto all_reduce(const ElementRange auto& in, MutableElementRange auto&& out, ReduceOp op = ReduceOp::sum,
                  const ReductionOrder& order = {}, Where where = Where::current()) {
    return issue(call(Operation::all_reduce, view(in), view(out), where).all_reduce(op, order));
  }
  /// @brief all_reduce that overwrites its input.
  auto all_reduce_in_place(auto&& data, ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                           Where where = Where::current()) {
    const detail::Elements both = writable(data);
    return issue(call(Operation::all_reduce, both, both, where).all_reduce(op, order));
  }

  /// @brief Block r of `out` = `in` of rank r.
  auto all_gather(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& blocks = {},
                  Where where = Where::current()) {
    return issue(call(Operation::all_gather, view(in), view(out), where).all_gather(blocks.get()));
  }
  /// @brief all_gather with this rank's block already in place in `data`.
  auto all_gather_in_place(auto&& data, const Blocks& blocks = {}, Where where = Where::current()) {
    const detail::Elements both = writable(data);
    Call typed = call(Operation::all_gather, both, both, where);
    return issue(typed.in_place(blocks.get()).all_gather(blocks.get()));
  }

  /// @brief `out` = op over ranks of this rank's block of `in`, equal blocks, in the fixed order.
  auto reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    return reduce_scatter(in, out, Blocks(), op, order, where);
  }
  /// @brief The same, where block r of `in` goes to rank r.
  auto reduce_scatter(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& blocks,
                      ReduceOp op = ReduceOp::sum, const ReductionOrder& order = {},
                      Where where = Where::current()) {
    return issue(
        call(Operation::reduce_scatter, view(in), view(out), where).reduce_scatter(blocks.get(), op, order));
  }
  /// @brief reduce_scatter whose result replaces this rank's block of `data`.
  auto reduce_scatter_in_place(auto&& data, const Blocks& blocks = {}, ReduceOp op = ReduceOp::sum,
                               const ReductionOrder& order = {}, Where where = Where::current()) {
    const detail::Elements both = writable(data);
    Call typed = call(Operation::reduce_scatter, both, both, where);
    return issue(typed.in_place(blocks.get()).reduce_scatter(blocks.get(), op, order));
  }

  /// @brief `in_blocks[r]` goes to rank r; the data from rank r goes to `out_blocks[r]`.
  auto all_to_all(const ElementRange auto& in, MutableElementRange auto&& out, const Blocks& in_blocks = {},
                  const Blocks& out_blocks = {}, Where where = Where::current()) {
    Call typed = call(Operation::all_to_all, view(in), view(out), where);
    return issue(typed.all_to_all(in_blocks.get(), out_blocks.get()));
  }

  /// @brief `data` of every rank = `data` of the root.
  auto broadcast(MutableElementRange auto&& data, int root, Where where = Where::current()) {
    return issue(detail::call_of(Operation::broadcast, where, view(data), root));
  }

  /// @brief Ends when every rank of the group has entered.
  auto barrier(Where where = Where::current()) { return issue(detail::call_of(Operation::barrier, where)); }

  /// @brief Sends `data` to the rank `to` of this group, which receives equally many elements under the same
  /// tag.
  auto send(const ElementRange auto& data, int to, int tag = 0, Where where = Where::current()) {
    return issue(detail::call_of(Operation::send, where, view(data), to, tag));
  }
  /// @brief Receives into `data` the message that the rank `from` of this group sends under the same tag.
  auto receive(MutableElementRange auto&& data, int from, int tag = 0, Where where = Where::current()) {
    return issue(detail::call_of(Operation::receive, where, view(data), from, tag));
  }

protected:
  ~TypedOperations() = default;

private:
  auto issue(const CollectiveCall& call) { return static_cast<Issuer&>(*this).issue(call); }

  template <class Range> static detail::Elements view(Range& range) {
    static_assert(
        Handle::host_memory || !detail::is_host_container<Range>,
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
    return Call(static_cast<Issuer&>(*this).handle(), operation, in, out, where);
  }
};

/// @brief The typed operations of a communicator that return a Pending at once.
template <class Handle> class AsyncOperations : public TypedOperations<Handle, AsyncOperations<Handle>> {
public:
  explicit AsyncOperations(Handle& handle) noexcept : handle_(handle) {}
  [[nodiscard]] Handle& handle() const noexcept { return handle_; }
  [[nodiscard]] Pending issue(const CollectiveCall& call) { return handle_.start(call); }

private:
  Handle& handle_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
