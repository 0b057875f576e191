// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One call of an NCCL group in progress, and the monitoring of its stream.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/call_record.hpp>
#include <shardwright/comm/pending.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The stream in NCCL's type.
template <class Stream> [[nodiscard]] decltype(auto) native_stream(Stream& stream) {
  if constexpr (requires { stream.get(); })
    return stream.get();
  else
    return (stream);
}

/// One call: it waits for its turn, is issued to NCCL, and is enqueued once NCCL's kernels are on the stream.
template <class Runtime> struct NcclCall : KeptCall {
  enum class Stage : std::uint8_t { waiting, issuing, enqueued };

  explicit NcclCall(Runtime& runtime) : ready_event(runtime.make_event()), done_event(runtime.make_event()) {}

  void begin(const CollectiveCall& source, std::uint64_t number) {
    copy(source);
    sequence = number;
    stage = Stage::waiting;
    held = true;
    watched = false;
    on_own_stream = true;
    joined = false;
    is_compared = false;
    failed = nullptr;
  }

  std::uint64_t sequence = 0;
  Stage stage = Stage::waiting;
  bool held = false;         ///< Its handle still exists.
  bool watched = false;      ///< On a stream and not known to be done.
  bool on_own_stream = true; ///< On the communicator's stream; else on the rank's.
  bool joined = false;       ///< A message that is issued together with the next call.
  MessageHeader header;      ///< Of a message: that of its sender.
  Pending compared;          ///< The message of the hosts that carries it.
  bool is_compared = false;
  std::exception_ptr failed;           ///< What a poll has found, for the wait to throw.
  typename Runtime::Event ready_event; ///< Marks the rank's stream at the start of the call.
  typename Runtime::Event done_event;
  /// When it was issued to NCCL, and later when it became the oldest on its stream.
  std::chrono::steady_clock::time_point begun{};
};

/// Calls in the order of their stream; completed ones are removed.
template <class Runtime> class NcclWatch {
public:
  using Call = NcclCall<Runtime>;

  void add(Call& call) {
    call.watched = true;
    call.begun = std::chrono::steady_clock::now();
    calls_.push_back(&call);
  }
  /// Removes completed calls, and passes each to `forgotten`. @throws if the device has failed.
  template <class Forgotten> void sweep(Runtime& runtime, Forgotten&& forgotten) {
    std::size_t done = 0;
    while (done < calls_.size() && runtime.done(calls_[done]->done_event)) {
      Call& call = *calls_[done++];
      call.watched = false;
      forgotten(call);
    }
    if (done == 0)
      return;
    calls_.erase(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(done));
    if (!calls_.empty())
      calls_.front()->begun = std::chrono::steady_clock::now();
  }
  /// The oldest call that is not known to be done, or null.
  [[nodiscard]] Call* oldest() const noexcept { return calls_.empty() ? nullptr : calls_.front(); }

private:
  std::vector<Call*> calls_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
