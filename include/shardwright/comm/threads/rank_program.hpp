// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Detects that a rank's program calls exit() while other ranks are running: they would be cut off,
/// and the process would end with a success code.

#include <shardwright/comm/threads/process_end.hpp>
#include <shardwright/comm/threads/world.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// During its lifetime, the calling thread runs the program of a rank. exit() and quick_exit() are detected
/// by the handlers that they call; _exit(), _Exit() and signals cannot be detected.
class RankProgram {
public:
  RankProgram(ThreadWorld& world, int rank) noexcept : world_(world), rank_(rank), outer_(own_) {
    running_.fetch_add(1, std::memory_order_seq_cst);
    own_ = this;
  }
  ~RankProgram() {
    own_ = outer_;
    running_.fetch_sub(1, std::memory_order_seq_cst);
    world_.program_ends(rank_);
  }
  RankProgram(const RankProgram&) = delete;
  RankProgram& operator=(const RankProgram&) = delete;

  /// Before programs begin: registers the handlers, one for each rank, because the first of several that call
  /// exit() takes one off the list, and the next would run past it to the end of the process.
  static void watch_exit(int ranks) noexcept {
    static const pid_t process = process_ = ::getpid();
    static_cast<void>(process);
    const std::lock_guard lock(registering_);
    for (; registered_ < ranks; ++registered_) {
#if defined(__GLIBC__)
      static_cast<void>(::on_exit([](int code, void*) { at_exit("exit()", code); }, nullptr));
#else
      static_cast<void>(std::atexit([] { at_exit("exit()", 0); }));
#endif
#if !defined(__APPLE__)
      static_cast<void>(std::at_quick_exit([] { at_exit("quick_exit()", 0); }));
#endif
    }
  }

private:
  /// On the thread that called it. Harmless if no other program runs, and in a child that a rank has forked.
  static void at_exit(const char* called, int code) noexcept {
    int own = 0;
    for (const RankProgram* each = own_; each != nullptr; each = each->outer_)
      ++own;
    if (running_.load(std::memory_order_seq_cst) <= own || process_ != ::getpid())
      return;
    if (reporting_.exchange(true)) // another rank is about to end the process
      std::this_thread::sleep_for(std::chrono::minutes(1));
    try {
      if (own_ != nullptr)
        own_->world_.write_flights(own_->left(called));
      write_last_words(report_line(sentence(called), on_terminal()));
    } catch (...) {
      write_last_words({});
    }
    std::_Exit(code != 0 ? code : EXIT_FAILURE);
  }

  [[nodiscard]] static std::string sentence(const char* called) {
    std::string who = "a thread that belongs to no rank called ";
    std::vector<int> others;
    if (own_ != nullptr) {
      who = "rank " + std::to_string(own_->rank_) + " called ";
      for (int rank = 0; rank < own_->world_.ranks(); ++rank)
        if (rank != own_->rank_ && own_->world_.runs(rank))
          others.push_back(rank);
    }
    return "launch: the process must not exit while ranks run, but " + who + called + " while " +
           (others.empty() ? "ranks of another launch" : ranks_text(others)) + " went on" +
           (own_ == nullptr ? std::string()
                            : ": rank " + std::to_string(own_->rank_) + ": " +
                                  own_->world_.recorder(own_->rank_).describe()) +
           " (return from the program, or throw)";
  }

  [[nodiscard]] Failure left(const char* called) const {
    Failure out;
    out.kind = Failure::Kind::left;
    out.rank = rank_;
    out.sentence = std::string("it called ") + called;
    return out;
  }

  ThreadWorld& world_;
  const int rank_;
  RankProgram* const outer_;
  inline static thread_local RankProgram* own_ = nullptr;
  inline static std::atomic<int> running_{0};
  inline static std::atomic<bool> reporting_{false};
  inline static std::mutex registering_;
  inline static int registered_ = 0; ///< Under the mutex.
  inline static pid_t process_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
