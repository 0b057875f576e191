// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One call of an NCCL group in progress: its comparison between the hosts, and the monitoring of its
/// stream.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/call_record.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
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
    keep(source);
    sequence = number;
    stage = Stage::waiting;
    held = true;
    watched = false;
    on_own_stream = true;
    failed = nullptr;
  }

  std::uint64_t sequence = 0;
  Stage stage = Stage::waiting;
  bool held = false;                   ///< Its handle still exists.
  bool watched = false;                ///< On a stream and not known to be done.
  bool on_own_stream = true;           ///< On the communicator's stream; else on the rank's.
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

/// Lets the hosts of a group compare their calls before they are enqueued, one at a time; the memory is
/// reused.
class NcclAgreement {
public:
  /// Sends this rank's call to the others.
  void begin(HostCommunicator& host, const CollectiveCall& call, std::uint64_t sequence) {
    const Fingerprint own = fingerprint(call, host.rank(), host.size(), sequence);
    own_ = {own.common, own.unpaired()};
    all_.resize(2 * static_cast<std::size_t>(host.size()));
    pending_ = host.all_gather_async(own_, all_, call.where);
    under_way_ = true;
  }
  [[nodiscard]] bool under_way() const noexcept { return under_way_; }
  [[nodiscard]] bool ready() const { return pending_.ready(); }

  /// Waits for all ranks' calls. @return whether they agree. @throws the host group's errors.
  [[nodiscard]] bool finish() {
    under_way_ = false;
    pending_.wait();
    FingerprintComparison calls;
    for (std::size_t i = 0; i < all_.size(); i += 2)
      calls.add(all_[i], all_[i + 1]);
    return calls.agree();
  }

  /// Collective over the host group, after all ranks have seen that they disagree: builds the error sentence
  /// that shows all calls.
  [[nodiscard]] static std::string explain(const HostCommunicator& host, const CollectiveCall& call,
                                           std::uint64_t sequence) {
    const auto accounts = all_gather_v(host, CallAccount::pack(call, sequence, host.size()), call.where);
    return mismatch_of_accounts(host, "their sequence numbers differ",
                                [&](int rank) { return accounts[static_cast<std::size_t>(rank)].data(); });
  }

private:
  std::array<std::uint64_t, 2> own_{};
  std::vector<std::uint64_t> all_;
  Pending pending_;
  bool under_way_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
