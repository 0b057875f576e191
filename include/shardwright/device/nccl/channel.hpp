// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NCCL's result codes without NCCL's header, the typed errors that they become, and one NCCL
/// communicator from its non-blocking start to its end.

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The values of ncclResult_t.
enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

[[nodiscard]] constexpr bool failed(NcclResult result) noexcept {
  return result != NcclResult::success && result != NcclResult::in_progress;
}

/// Advice on a code, for the end of a sentence.
[[nodiscard]] constexpr const char* advice_on(NcclResult result) noexcept {
  switch (result) {
  case NcclResult::unhandled_cuda_error:
    return "an earlier kernel may have failed: run compute-sanitizer, or set NCCL_DEBUG=INFO";
  case NcclResult::system_error:
    return "check the network, shared memory and file limits; NCCL_DEBUG=INFO names the call that failed";
  case NcclResult::internal_error:
    return "set NCCL_DEBUG=INFO, and look for memory that was written out of bounds";
  case NcclResult::invalid_argument:
    return "pass memory of this rank's own GPU";
  case NcclResult::invalid_usage:
    return "give every rank a GPU of its own and the same NCCL version";
  case NcclResult::remote_error:
    return "see the messages of the rank that ended or lost its network";
  case NcclResult::success:
  case NcclResult::in_progress:
    break;
  }
  return "set NCCL_DEBUG=INFO";
}

/// Throws the error of a code: InvalidArgument and LifecycleError for what the caller did, PeerFailed for
/// another rank's end, TransportError for the rest. `text` is NCCL's own.
[[noreturn]] inline void throw_nccl(NcclResult result, const std::string& what, const std::string& text,
                                    ErrorContext context) {
  const std::string sentence =
      what + ": NCCL must succeed, but it reported \"" + text + "\" (" + advice_on(result) + ")";
  switch (result) {
  case NcclResult::invalid_argument:
    throw InvalidArgument(sentence, std::move(context));
  case NcclResult::invalid_usage:
    throw LifecycleError(sentence, std::move(context));
  case NcclResult::remote_error:
    throw PeerFailed(-1, sentence, std::move(context));
  default:
    throw TransportError(static_cast<int>(result), sentence, std::move(context));
  }
}

template <class Api>
class NcclChannel;

/// The NCCL communicators of one rank. They are aborted together: the kernel of one that is stuck holds up
/// the streams that the others wait for, so that aborting only another one would not end.
template <class Api>
class NcclRankChannels {
public:
  /// Those of the calling thread, which is a rank.
  [[nodiscard]] static std::shared_ptr<NcclRankChannels> of_this_rank() {
    thread_local std::weak_ptr<NcclRankChannels> known;
    std::shared_ptr<NcclRankChannels> out = known.lock();
    if (!out)
      known = out = std::make_shared<NcclRankChannels>();
    return out;
  }

  void enter(NcclChannel<Api>* channel) {
    const std::lock_guard lock(mutex_);
    channels_.push_back(channel);
  }
  void leave(NcclChannel<Api>* channel) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(channels_, channel);
  }

  /// Aborts all side by side, and waits until they are gone. ncclCommAbort raises the flag of its
  /// communicator, then joins the job that NCCL runs for it, which may itself wait behind a sibling's kernel:
  /// one after another, the first would never return. @param why what is said to whoever uses one of them
  /// later.
  void abort(const std::string& why) noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<std::thread> aborts;
    for (NcclChannel<Api>* channel : channels_) {
      channel->close(why);
      try {
        aborts.emplace_back([channel] { channel->end_at_once(); });
      } catch (const std::exception&) { // no thread to be had: in turn
        channel->end_at_once();
      }
    }
    for (std::thread& each : aborts)
      each.join();
    channels_.clear();
  }

private:
  std::mutex mutex_;
  std::vector<NcclChannel<Api>*> channels_;
};

/// One NCCL communicator. No function of it waits for another rank; `state` tells how things stand.
template <class Api>
class NcclChannel {
public:
  using Native = typename Api::Communicator;

  NcclChannel(Api& api, std::shared_ptr<NcclRankChannels<Api>> of_rank)
      : api_(api), of_rank_(std::move(of_rank)) {}
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;
  ~NcclChannel() {
    if (!open_)
      return;
    of_rank_->leave(this);
    static_cast<void>(api_.abort(native_));
  }

  /// Begins to form the communicator, of which this is one rank of `ranks`.
  [[nodiscard]] NcclResult open(const typename Api::UniqueId& id, int ranks, int rank, std::string name) {
    name_ = std::move(name);
    of_rank_->enter(this);
    const NcclResult result = api_.init(native_, ranks, id, rank, name_.c_str());
    open_ = !failed(result);
    if (!open_)
      of_rank_->leave(this);
    return result;
  }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Why it was aborted; empty if it was not.
  [[nodiscard]] const std::string& aborted() const noexcept { return aborted_; }

  /// in_progress while what was asked for last is under way on the host; kernels that run are not.
  [[nodiscard]] NcclResult state() noexcept {
    return open_ ? api_.state(native_) : NcclResult::invalid_usage;
  }

  /// Has `calls(communicator)` enqueue its operations as one group: they move side by side. The first result
  /// that is no success counts.
  template <class Calls>
  [[nodiscard]] NcclResult issue(Calls&& calls) {
    const NcclResult begun = api_.group_start();
    if (failed(begun))
      return begun;
    const NcclResult called = calls(native_);
    const NcclResult ended = api_.group_end();
    return failed(called) ? called : ended;
  }

  /// Begins to end it in order, once all its operations are done.
  [[nodiscard]] NcclResult finalize() noexcept {
    return open_ ? api_.finalize(native_) : NcclResult::success;
  }
  /// Frees it after finalize() has come to its end.
  void destroy() noexcept {
    if (!open_)
      return;
    of_rank_->leave(this);
    open_ = false;
    static_cast<void>(api_.destroy(native_));
  }

  /// NCCL's text for a code.
  [[nodiscard]] std::string text(NcclResult code) const {
    return api_.text(code, open_ ? native_ : Native{});
  }

private:
  friend class NcclRankChannels<Api>;

  void close(const std::string& why) noexcept {
    open_ = false;
    try {
      aborted_ = why.empty() ? "aborted" : why;
    } catch (...) { // without memory for the reason it is aborted all the same
    }
  }
  void end_at_once() noexcept { static_cast<void>(api_.abort(native_)); }

  Api& api_;
  std::shared_ptr<NcclRankChannels<Api>> of_rank_;
  Native native_{};
  std::string name_; ///< NCCL keeps a pointer to it.
  bool open_ = false;
  std::string aborted_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
