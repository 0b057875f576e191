// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Started calls of one thread rank: collectives in order on a worker thread, messages posted at once.

#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/threads/member.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The asynchronous side of a ThreadMember. The worker begins with the first started collective and ends with
/// the queue.
///
/// Records of calls are recycled, so a steady sequence of starts and waits allocates nothing.
class ThreadQueue {
public:
  explicit ThreadQueue(ThreadMember& member) : member_(member), patience_(member.world().worker_patience()) {}
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
  [[nodiscard]] PendingOperation* start(const CollectiveCall& call) {
    Work* const work = take(free_works_, works_);
    work->keep(call);
    if (member_.size() == 1) {
      issued_.fetch_add(1, std::memory_order_relaxed);
      perform(*work);
      return work;
    }
    if (!worker_.joinable())
      worker_ = std::thread([this] { serve(); });
    {
      const std::lock_guard lock(mutex_);
      work->next = nullptr;
      (tail_ == nullptr ? head_ : tail_->next) = work;
      tail_ = work;
      issued_.fetch_add(1, std::memory_order_seq_cst);
    }
    arrived_.notify();
    return work;
  }

  /// Posts a message.
  [[nodiscard]] PendingOperation* post(const CollectiveCall& call) {
    Letter* const letter = take(free_letters_, letters_);
    member_.post(letter->message, call);
    return letter;
  }

  /// Returns when every started collective is done, so that a blocking one keeps its place in the order.
  void drain() {
    const auto empty = [this] {
      return finished_.load(std::memory_order_seq_cst) == issued_.load(std::memory_order_seq_cst);
    };
    while (!empty())
      if (done_.wait(empty, patience_, member_.world().deadline()))
        break;
  }

private:
  struct Work final : PendingOperation {
    explicit Work(ThreadQueue& owner) : queue(owner) {}
    [[nodiscard]] bool ready() override { return done.load(std::memory_order_seq_cst); }
    void wait() override { queue.wait(*this); }
    void abandon() noexcept override { queue.abandon(*this); }
    void keep(const CollectiveCall& source) {
      call = source;
      in_blocks.assign(source.in_blocks.begin(), source.in_blocks.end());
      out_blocks.assign(source.out_blocks.begin(), source.out_blocks.end());
      call.in_blocks = in_blocks;
      call.out_blocks = out_blocks;
      error = nullptr;
      done.store(false, std::memory_order_relaxed);
    }

    ThreadQueue& queue;
    CollectiveCall call{};
    std::vector<StridedBlock> in_blocks;
    std::vector<StridedBlock> out_blocks;
    std::exception_ptr error;
    std::atomic<bool> done{false};
    Work* next = nullptr;
  };

  struct Letter final : PendingOperation {
    explicit Letter(ThreadQueue& owner) : queue(owner) {}
    [[nodiscard]] bool ready() override {
      return message.over() || queue.member_.group().ended_for(message.call.root);
    }
    void wait() override { queue.wait(*this); }
    void abandon() noexcept override { queue.abandon(*this); }

    ThreadQueue& queue;
    ThreadMessage message;
  };

  /// Gives a record back when a wait ends, by return or by exception.
  template <class Record>
  class Return {
  public:
    Return(ThreadQueue& queue, std::vector<Record*>& free, Record& record)
        : queue_(queue), free_(free), record_(record) {}
    ~Return() {
      const std::lock_guard lock(queue_.mutex_);
      free_.push_back(&record_);
    }
    Return(const Return&) = delete;
    Return& operator=(const Return&) = delete;

  private:
    ThreadQueue& queue_;
    std::vector<Record*>& free_;
    Record& record_;
  };

  template <class Record>
  [[nodiscard]] Record* take(std::vector<Record*>& free, std::vector<std::unique_ptr<Record>>& all) {
    const std::lock_guard lock(mutex_);
    if (free.empty()) {
      free.reserve(all.size() + 1);
      return all.emplace_back(std::make_unique<Record>(*this)).get();
    }
    Record* const out = free.back();
    free.pop_back();
    return out;
  }

  void wait(Work& work) {
    const Return<Work> back(*this, free_works_, work);
    finish(work);
    if (work.error)
      std::rethrow_exception(std::exchange(work.error, nullptr));
  }
  void wait(Letter& letter) {
    const Return<Letter> back(*this, free_letters_, letter);
    member_.finish(letter.message, patience_);
  }

  void abandon(Work& work) noexcept {
    const Return<Work> back(*this, free_works_, work);
    member_.fail(member_.dropped(work.call));
    // The buffers may be gone as soon as this returns; the worker leaves them as soon as it sees the failure.
    finish(work);
    work.error = nullptr;
  }
  void abandon(Letter& letter) noexcept {
    const Return<Letter> back(*this, free_letters_, letter);
    member_.fail(member_.dropped(letter.message.call));
    member_.discard(letter.message, patience_);
  }

  /// The worker ends every call within the deadline, so this does too.
  void finish(Work& work) {
    while (!done_.wait([&work] { return work.ready(); }, patience_, member_.world().deadline())) {
    }
  }

  void perform(Work& work) noexcept {
    try {
      member_.execute(work.call, patience_);
    } catch (...) {
      work.error = std::current_exception();
    }
    finished_.fetch_add(1, std::memory_order_seq_cst);
    work.done.store(true, std::memory_order_seq_cst);
    done_.notify();
  }

  void serve() {
    for (;;) {
      Work* work = nullptr;
      {
        const std::lock_guard lock(mutex_);
        work = head_;
        if (work != nullptr) {
          head_ = work->next;
          if (head_ == nullptr)
            tail_ = nullptr;
        }
      }
      if (work != nullptr) {
        perform(*work);
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
  std::mutex mutex_;
  Work* head_ = nullptr;
  Work* tail_ = nullptr;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::unique_ptr<Letter>> letters_;
  std::vector<Work*> free_works_;
  std::vector<Letter*> free_letters_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> stop_{false};
  WaitPoint arrived_;
  WaitPoint done_;
  std::thread worker_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
