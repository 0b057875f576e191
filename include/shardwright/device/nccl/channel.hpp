// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One NCCL communicator from its non-blocking start to its end, and the siblings that end with it.

#include <shardwright/device/nccl/result.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template <class Api>
class NcclChannel;

/// The NCCL communicators of one rank. They are aborted together: the kernel of one that is stuck holds up
/// the streams that the others wait for, so that aborting only another one would not end.
template <class Api>
class NcclSiblings {
public:
  /// Those of the calling thread, which is a rank.
  [[nodiscard]] static std::shared_ptr<NcclSiblings> of_this_rank() {
    thread_local std::weak_ptr<NcclSiblings> known;
    std::shared_ptr<NcclSiblings> out = known.lock();
    if (!out)
      known = out = std::make_shared<NcclSiblings>();
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

  /// Raises the abort flags of all, then waits until their kernels have seen them. @param why what is said to
  /// whoever uses one of them later.
  void abort(Api& api, const std::string& why) noexcept {
    const std::lock_guard lock(mutex_);
    static_cast<void>(api.group_start());
    for (NcclChannel<Api>* channel : channels_)
      channel->give_up(why);
    static_cast<void>(api.group_end());
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

  NcclChannel(Api& api, std::shared_ptr<NcclSiblings<Api>> siblings)
      : api_(api), siblings_(std::move(siblings)) {}
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;
  ~NcclChannel() {
    if (!open_)
      return;
    siblings_->leave(this);
    static_cast<void>(api_.abort(native_));
  }

  /// Begins to form the communicator, of which this is one rank of `ranks`.
  [[nodiscard]] NcclResult open(const typename Api::UniqueId& id, int ranks, int rank, std::string name) {
    name_ = std::move(name);
    siblings_->enter(this);
    const NcclResult result = api_.init(native_, ranks, id, rank, name_.c_str());
    open_ = !failed(result);
    if (!open_)
      siblings_->leave(this);
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
    siblings_->leave(this);
    open_ = false;
    static_cast<void>(api_.destroy(native_));
  }

  /// NCCL's text for a code.
  [[nodiscard]] std::string text(NcclResult code) const {
    return api_.text(code, open_ ? native_ : Native{});
  }

private:
  friend class NcclSiblings<Api>;

  void give_up(const std::string& why) noexcept {
    open_ = false;
    try {
      aborted_ = why.empty() ? "aborted" : why;
    } catch (...) { // without memory for the reason it is aborted all the same
    }
    static_cast<void>(api_.abort(native_));
  }

  Api& api_;
  std::shared_ptr<NcclSiblings<Api>> siblings_;
  Native native_{};
  std::string name_; ///< NCCL keeps a pointer to it.
  bool open_ = false;
  std::string aborted_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
