// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One call of an NCCL group on its way, the records that are used again, and the watch over what is
/// on a stream.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The stream as NCCL takes it.
template <class Stream>
[[nodiscard]] decltype(auto) native_stream(Stream& stream) {
  if constexpr (requires { stream.get(); })
    return stream.get();
  else
    return (stream);
}

template <class Runtime>
struct NcclWork;

/// Whoever drives the calls.
template <class Runtime>
class NcclWorkOwner {
public:
  virtual ~NcclWorkOwner() = default;
  [[nodiscard]] virtual bool ready(NcclWork<Runtime>& work) = 0;
  virtual void wait(NcclWork<Runtime>& work) = 0;
  virtual void abandon(NcclWork<Runtime>& work) noexcept = 0;
};

/// One call. It waits for its turn, is issued to NCCL, and is enqueued once NCCL's kernels are on the stream.
template <class Runtime>
struct NcclWork final : PendingOperation {
  enum class Stage : std::uint8_t { waiting, issuing, enqueued };

  NcclWork(NcclWorkOwner<Runtime>& of, Runtime& runtime)
      : owner(of), ready_event(runtime.make_event()), done_event(runtime.make_event()) {}
  [[nodiscard]] bool ready() override { return owner.ready(*this); }
  void wait() override { owner.wait(*this); }
  void abandon() noexcept override { owner.abandon(*this); }

  void keep(const CollectiveCall& source, std::uint64_t number) {
    call = source;
    in_blocks.assign(source.in_blocks.begin(), source.in_blocks.end());
    out_blocks.assign(source.out_blocks.begin(), source.out_blocks.end());
    call.in_blocks = in_blocks;
    call.out_blocks = out_blocks;
    sequence = number;
    stage = Stage::waiting;
    held = true;
    watched = false;
    on_own_stream = true;
  }

  NcclWorkOwner<Runtime>& owner;
  CollectiveCall call{};
  std::vector<StridedBlock> in_blocks;
  std::vector<StridedBlock> out_blocks;
  std::uint64_t sequence = 0;
  Stage stage = Stage::waiting;
  bool held = false;                   ///< Somebody will still ask for it.
  bool watched = false;                ///< On a stream, as far as is known.
  bool on_own_stream = true;           ///< On a stream of the communicator; else on the rank's.
  typename Runtime::Event ready_event; ///< What the rank's stream held at the start.
  typename Runtime::Event done_event;
  /// When NCCL got it, and then when it became the oldest of its stream.
  std::chrono::steady_clock::time_point begun{};
};

/// Records of calls, recycled so that a steady state allocates nothing.
template <class Runtime>
class NcclWorks {
public:
  using Work = NcclWork<Runtime>;

  [[nodiscard]] Work& take(NcclWorkOwner<Runtime>& owner, Runtime& runtime) {
    if (free_.empty()) {
      free_.reserve(all_.size() + 1);
      return *all_.emplace_back(std::make_unique<Work>(owner, runtime));
    }
    Work& out = *free_.back();
    free_.pop_back();
    return out;
  }
  /// Takes a record back if nobody holds and nobody watches it.
  void give_back(Work& work) noexcept {
    if (!work.held && !work.watched)
      free_.push_back(&work); // within what take() has reserved
  }

private:
  std::vector<std::unique_ptr<Work>> all_;
  std::vector<Work*> free_;
};

/// Calls in the order in which they lie on one stream; those that are done leave.
template <class Runtime>
class NcclWatch {
public:
  using Work = NcclWork<Runtime>;

  void add(Work& work) {
    work.watched = true;
    work.begun = std::chrono::steady_clock::now();
    calls_.push_back(&work);
  }
  /// Forgets what is done. A failed device throws.
  void sweep(Runtime& runtime, NcclWorks<Runtime>& works) {
    std::size_t done = 0;
    while (done < calls_.size() && runtime.done(calls_[done]->done_event)) {
      Work& work = *calls_[done++];
      work.watched = false;
      works.give_back(work);
    }
    if (done == 0)
      return;
    calls_.erase(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(done));
    if (!calls_.empty())
      calls_.front()->begun = std::chrono::steady_clock::now();
  }
  /// The oldest call that is not known to be done, or null.
  [[nodiscard]] Work* oldest() const noexcept { return calls_.empty() ? nullptr : calls_.front(); }
  void clear() noexcept { calls_.clear(); }

private:
  std::vector<Work*> calls_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
