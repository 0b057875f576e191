// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Marks by which a transport in device memory notes when a call moves its data: events of a stream,
/// or functions of the host.

#include <shardwright/comm/call.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The times of a call as events of its rank's device, in the order of the streams; read when all have
/// passed.
template <class Runtime>
struct MarkedTimes : CallTimes {
  explicit MarkedTimes(Runtime& runtime)
      : CallTimes(Marked{}), device(runtime.device()), moves(runtime.make_timed_event()),
        moved(runtime.make_timed_event()), reached(runtime.make_timed_event()),
        passed(runtime.make_timed_event()) {}

  int device;
  CallTimes* asked = nullptr;      ///< Of whoever made the call, for functions of the host.
  bool local = false;              ///< Whether `moves` and `moved` are marked: on this device, that is.
  typename Runtime::Event moves;   ///< On the transport's stream: the data begins to move,
  typename Runtime::Event moved;   ///< and has moved.
  typename Runtime::Event reached; ///< On the rank's stream: it comes to where it waits for the call,
  typename Runtime::Event passed;  ///< and goes on.
};

/// Notes one of the times of a call for whoever asks, in a stream's order; before `run` or `wait` of the call
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
template <class Runtime>
void note_end(Runtime& runtime, typename Runtime::Stream& stream, CallTimes* times) {
  note_time(runtime, stream, times, &MarkedTimes<Runtime>::moved,
            [](void* of) { static_cast<CallTimes*>(of)->end(); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
