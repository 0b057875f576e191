// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The requirements of the transport of thread ranks in device memory on a device's runtime.

#include <shardwright/core/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A kernel as the concept below knows it; `runtime.launch` takes any with this operator.
struct AnyPeerKernel {
  SHARDWRIGHT_FUNCTION void operator()(unsigned, std::uint64_t, unsigned) const {}
};

} // namespace detail

/// @brief Streams, events and kernels of a device, as the peer transport uses them. Nothing waits on the
/// host.
///
/// 1. A Stream is a handle: copies name one queue, whose work runs in order.
/// 2. `record` makes an event stand for what a stream holds now; `wait` puts what comes on a stream later
///    behind what the event stands for at the time of the call. An event may be recorded again.
/// 3. `done` is whether what an event stands for has run; true for one that was never recorded.
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

} // namespace shardwright::inline SHARDWRIGHT_ABI
