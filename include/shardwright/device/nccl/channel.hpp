// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NCCL's result codes without NCCL's header, their conversion to typed errors, and the lifetime of
/// one non-blocking NCCL communicator.

#include <shardwright/core/error.hpp>
#include <shardwright/device/driven_transports.hpp>

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

/// Advice for a code, to end an error sentence.
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
    return "give every rank a separate GPU and the same NCCL version";
  case NcclResult::remote_error:
    return "see the messages of the rank that ended or lost its network";
  case NcclResult::success:
  case NcclResult::in_progress:
    break;
  }
  return "set NCCL_DEBUG=INFO";
}

/// Throws the error of a code: InvalidArgument and LifecycleError for errors of the caller, PeerFailed if
/// another rank has ended, TransportError for the rest. `text` is NCCL's own.
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

template <class Api> class NcclChannel;

/// The NCCL communicators of one rank. They are aborted together: a stuck kernel of one holds up the streams
/// that the others wait for, so aborting only another one would never return.
template <class Api> class NcclRankChannels : public RankRegistry<NcclRankChannels<Api>, NcclChannel<Api>> {
public:
  /// Aborts all concurrently, and waits until they are gone. ncclCommAbort sets the abort flag of its
  /// communicator, then joins its background job, which may itself wait behind a sibling's kernel:
  /// sequentially, the first abort would never return.
  /// @param why the reason given to later users of one of them.
  void abort(const std::string& why) noexcept {
    const std::lock_guard lock(this->mutex_);
    std::vector<std::thread> aborts;
    for (NcclChannel<Api>* channel : this->members_) {
      channel->close(why);
      try {
        aborts.emplace_back([channel] { channel->end_at_once(); });
      } catch (const std::exception&) { // no thread available: one after the other
        channel->end_at_once();
      }
    }
    for (std::thread& each : aborts)
      each.join();
    this->members_.clear();
  }
};

/// One NCCL communicator. None of its functions waits for another rank; `state` returns its progress.
template <class Api> class NcclChannel {
public:
  using Native = typename Api::Communicator;

  NcclChannel(Api& api, std::shared_ptr<NcclRankChannels<Api>> of_rank)
      : api_(api), of_rank_(std::move(of_rank)) {}
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;
  ~NcclChannel() {
    if (!open_)
      return;
    of_rank_->leave(*this);
    static_cast<void>(api_.abort(native_));
  }

  /// Begins to form the communicator, of which this is one rank of `ranks`.
  [[nodiscard]] NcclResult open(const typename Api::UniqueId& id, int ranks, int rank, std::string name) {
    name_ = std::move(name);
    of_rank_->enter(*this);
    const NcclResult result = api_.init(native_, ranks, id, rank, name_.c_str());
    open_ = !failed(result);
    if (!open_)
      of_rank_->leave(*this);
    return result;
  }
  /// Why it was aborted; empty if it was not.
  [[nodiscard]] const std::string& aborted() const noexcept { return aborted_; }

  /// in_progress while the last request is in progress on the host; running kernels do not count.
  [[nodiscard]] NcclResult state() noexcept {
    return open_ ? api_.state(native_) : NcclResult::invalid_usage;
  }

  /// Lets `calls(communicator)` enqueue its operations as one group, so that they run concurrently. Returns
  /// the first failure, if any.
  template <class Calls> [[nodiscard]] NcclResult issue(Calls&& calls) {
    const NcclResult begun = api_.group_start();
    if (failed(begun))
      return begun;
    const NcclResult called = calls(native_);
    const NcclResult ended = api_.group_end();
    return failed(called) ? called : ended;
  }

  /// Begins an orderly shutdown, once all its operations are done.
  [[nodiscard]] NcclResult finalize() noexcept {
    return open_ ? api_.finalize(native_) : NcclResult::success;
  }
  /// Frees it after finalize() has completed.
  void destroy() noexcept {
    if (!open_)
      return;
    of_rank_->leave(*this);
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
    } catch (...) { // even without memory for the reason it is aborted
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
