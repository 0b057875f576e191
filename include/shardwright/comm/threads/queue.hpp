// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Started calls of one thread rank: collectives in order on a worker thread, messages posted
/// immediately.

#include <shardwright/comm/call_record.hpp>
#include <shardwright/comm/threads/member.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The asynchronous side of a ThreadMember. The worker begins with the first started collective and ends with
/// the queue.
class ThreadQueue {
  struct Collective : KeptCall {
    DirectExchange* direct = nullptr;
    std::exception_ptr error;
    std::atomic<bool> done{false};
    Collective* next = nullptr;
  };
  using StartedCollective = StartedCall<ThreadQueue, Collective>;
  using StartedMessage = StartedCall<ThreadQueue, ThreadMessage>;

public:
  explicit ThreadQueue(ThreadMember& member)
      : member_(member), patience_(member.world().patience_beside_worker()) {}
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() {
    if (!worker_.joinable())
      return;
    stop_.store(true, std::memory_order_seq_cst);
    arrived_.notify();
    worker_.join();
  }

  /// Starts a collective; the record that it returns belongs to the queue.
  [[nodiscard]] PendingOperation* start(const CollectiveCall& call, DirectExchange* direct) {
    StartedCollective& started = collectives_.take(*this);
    RecordPool<StartedCollective>::Return back(collectives_, started); // unless the call was started
    started.copy(call);
    started.direct = direct;
    started.error = nullptr;
    started.done.store(false, std::memory_order_relaxed);
    if (member_.size() == 1) {
      issued_.fetch_add(1, std::memory_order_relaxed);
      perform(started);
      return back.release();
    }
    if (!worker_.joinable())
      worker_ = std::thread([this] { serve(); });
    {
      const std::lock_guard lock(mutex_);
      started.next = nullptr;
      (last_ == nullptr ? first_ : last_->next) = &started;
      last_ = &started;
      issued_.fetch_add(1, std::memory_order_seq_cst);
      member_.note_started();
    }
    arrived_.notify();
    return back.release();
  }

  /// Posts a message.
  [[nodiscard]] PendingOperation* post(const CollectiveCall& call) {
    StartedMessage& started = messages_.take(*this);
    member_.post(started, call, true);
    return &started;
  }

  /// Returns when every started collective is done, so that blocking ones stay in order.
  void drain() {
    const auto empty = [this] {
      return finished_.load(std::memory_order_seq_cst) == issued_.load(std::memory_order_seq_cst);
    };
    if (empty())
      return;
    const GroupMember::WaitsForStarted waits(member_);
    while (!empty())
      if (done_.wait(empty, patience_, member_.world().deadline()))
        break;
  }

  // Called by the handles of started calls.
  [[nodiscard]] bool ready(const Collective& started) const noexcept {
    return started.done.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] bool ready(const ThreadMessage& message) const noexcept {
    return message.over() || member_.group().ended_for(message.call.root);
  }
  /// The worker's own wait has a deadline.
  [[nodiscard]] static bool expire(const Collective&, std::chrono::nanoseconds) noexcept { return false; }
  [[nodiscard]] bool expire(ThreadMessage& message, std::chrono::nanoseconds polled) {
    return member_.expire(message, polled);
  }
  void wait(StartedCollective& started) {
    const RecordPool<StartedCollective>::Return back(collectives_, started);
    finish(started);
    if (started.error)
      std::rethrow_exception(std::exchange(started.error, nullptr));
  }
  void wait(StartedMessage& started) {
    const RecordPool<StartedMessage>::Return back(messages_, started);
    member_.wait_for(started, patience_);
  }
  void abandon(StartedCollective& started) noexcept {
    const RecordPool<StartedCollective>::Return back(collectives_, started);
    member_.fail_dropped(started.call);
    // The buffers may be gone as soon as this returns; the worker leaves them as soon as it sees the failure.
    finish(started);
    started.error = nullptr;
  }
  void abandon(StartedMessage& started) noexcept {
    const RecordPool<StartedMessage>::Return back(messages_, started);
    member_.fail_dropped(started.call);
    member_.discard(started, patience_);
  }

private:
  /// The worker ends every call within the deadline, so this does, too.
  void finish(const Collective& started) {
    if (ready(started))
      return;
    const GroupMember::WaitsForStarted waits(member_);
    while (!done_.wait([&] { return ready(started); }, patience_, member_.world().deadline())) {
    }
  }

  void perform(Collective& started) noexcept {
    try {
      member_.execute(started.call, patience_, {.direct = started.direct, .started = true});
    } catch (...) {
      started.error = std::current_exception();
    }
    finished_.fetch_add(1, std::memory_order_seq_cst);
    started.done.store(true, std::memory_order_seq_cst);
    done_.notify();
  }

  [[nodiscard]] Collective* take_first() noexcept {
    const std::lock_guard lock(mutex_);
    Collective* const out = first_;
    if (out != nullptr) {
      first_ = out->next;
      if (first_ == nullptr)
        last_ = nullptr;
    }
    return out;
  }

  void serve() {
    for (;;) {
      if (Collective* const started = take_first(); started != nullptr) {
        perform(*started);
        continue;
      }
      if (stop_.load(std::memory_order_seq_cst))
        return;
      const std::uint64_t seen = finished_.load(std::memory_order_seq_cst);
      const auto called = [this, seen] {
        return stop_.load(std::memory_order_seq_cst) || issued_.load(std::memory_order_seq_cst) != seen;
      };
      static_cast<void>(arrived_.wait(called, patience_, std::chrono::hours(1)));
    }
  }

  ThreadMember& member_;
  const Patience patience_;
  RecordPool<StartedCollective> collectives_;
  RecordPool<StartedMessage> messages_;
  std::mutex mutex_; ///< Of the calls that the worker has not begun.
  Collective* first_ = nullptr;
  Collective* last_ = nullptr;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> stop_{false};
  WaitPoint arrived_;
  WaitPoint done_;
  std::thread worker_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
