// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The runtime interface that device transports require, and the marks that record when a call moves
/// its data: stream events, or host functions.

#include <shardwright/comm/call.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A model kernel for the concept below; `runtime.launch` accepts any kernel with this operator.
struct AnyPeerKernel {
  SHARDWRIGHT_FUNCTION void operator()(unsigned, std::uint64_t, unsigned) const {}
};

} // namespace detail

/// @brief Streams, events and kernels of a device, as required by the peer transport.
///
/// Nothing waits on the host. 1. A Stream is a handle: copies refer to the same queue, whose work runs in
/// order. 2. `record` makes an event mark the current work of a stream; `wait` makes later work on a stream
/// wait for the work that the event marks at the time of the call. An event may be recorded again.
/// 3. `done` says whether the work marked by an event has run; true for an event that was never recorded.
/// 4. `launch(stream, kernel, blocks, tiles)` calls `kernel(block, tile, lane)` for every block below
///    `blocks`, every tile below `tiles` and every lane below `lanes`, in any order.
/// 5. A Table is memory that the host writes (`host`) and kernels read (`device`) after `upload`, which
///    reads it in the stream's order.
/// 6. `call` runs a function of the host in the stream's order. `make_timed_event` makes an event that also
///    knows when it passed, and `seconds(from, to)` is the time between two that have.
/// 7. `device` is its number in this process; streams, events and tables that a runtime makes belong to it.
///    An event is recorded on streams of its device; any stream may wait for it.
/// A device that fails throws TransportError.
template <class Type>
concept PeerRuntime = requires(Type runtime, typename Type::Stream stream, typename Type::Event event,
                               typename Type::Table table, std::size_t bytes, void* to, const void* from,
                               void (*function)(void*)) {
  { Type::lanes } -> std::convertible_to<unsigned>;
  { runtime.device() } -> std::same_as<int>;
  { runtime.make_stream() } -> std::same_as<typename Type::Stream>;
  { runtime.make_event() } -> std::same_as<typename Type::Event>;
  { runtime.make_timed_event() } -> std::same_as<typename Type::Event>;
  { runtime.seconds(event, event) } -> std::same_as<double>;
  { runtime.make_table(bytes) } -> std::same_as<typename Type::Table>;
  { table.host() } -> std::same_as<std::byte*>;
  { table.device() } -> std::same_as<const std::byte*>;
  { table.bytes() } -> std::same_as<std::size_t>;
  runtime.upload(stream, table, bytes);
  runtime.record(event, stream);
  runtime.wait(stream, event);
  { runtime.done(event) } -> std::same_as<bool>;
  runtime.copy(stream, to, from, bytes);
  runtime.launch(stream, detail::AnyPeerKernel{}, 1u, std::uint64_t{1});
  runtime.call(stream, function, to);
};

namespace detail {

/// The times of a call as events on its rank's device, in stream order; read when all have passed.
template <class Runtime> struct MarkedTimes : CallTimes {
  explicit MarkedTimes(Runtime& runtime)
      : CallTimes(Marked{}), device(runtime.device()), moves(runtime.make_timed_event()),
        moved(runtime.make_timed_event()), reached(runtime.make_timed_event()),
        passed(runtime.make_timed_event()) {}

  int device;
  CallTimes* asked = nullptr;      ///< The caller's times, for host functions.
  bool local = false;              ///< Whether `moves` and `moved` are recorded, that is, on this device.
  typename Runtime::Event moves;   ///< On the transport's stream: the data begins to move,
  typename Runtime::Event moved;   ///< and has moved.
  typename Runtime::Event reached; ///< The rank's stream reaches the wait for the call,
  typename Runtime::Event passed;  ///< and continues.
};

/// Records one of the times of a call, if requested, in stream order; before `run` or `wait` of the call
/// return.
template <class Runtime>
void note_time(Runtime& runtime, typename Runtime::Stream& stream, CallTimes* times,
               typename Runtime::Event MarkedTimes<Runtime>::*mark, void (*tell)(void*)) {
  if (times != nullptr && times->marked()) {
    auto& marks = static_cast<MarkedTimes<Runtime>&>(*times);
    marks.local = marks.device == runtime.device();
    if (marks.local)
      runtime.record(marks.*mark, stream);
    times = marks.asked;
  }
  if (times != nullptr)
    runtime.call(stream, tell, times);
}
template <class Runtime>
void note_begin(Runtime& runtime, typename Runtime::Stream& stream, CallTimes* times) {
  note_time(runtime, stream, times, &MarkedTimes<Runtime>::moves,
            [](void* of) { static_cast<CallTimes*>(of)->begin(); });
}
template <class Runtime> void note_end(Runtime& runtime, typename Runtime::Stream& stream, CallTimes* times) {
  note_time(runtime, stream, times, &MarkedTimes<Runtime>::moved,
            [](void* of) { static_cast<CallTimes*>(of)->end(); });
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
