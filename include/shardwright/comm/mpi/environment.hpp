// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The lifetime of MPI in this process, its errors as exceptions, and a watchdog for calls to which
/// MPI gives no deadline.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/mpi/end_wait.hpp>
#include <shardwright/comm/mpi/launcher.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#if !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The call that an error belongs to; its strings are built only for an error.
struct MpiCallSite {
  int world_rank = -1;
  const std::string* group = nullptr;
  Operation operation = Operation::barrier;
  std::uint64_t sequence = 0;
  SourceLocation where{};

  [[nodiscard]] ErrorContext context() const {
    return {
        world_rank, group == nullptr ? std::string() : *group, std::string(name_of(operation)), sequence, {},
        where};
  }
};

/// MPI's text for a code.
inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    return "unknown error " + std::to_string(code);
  return std::string(text, static_cast<std::size_t>(length));
}

/// Throws TransportError unless the code is MPI_SUCCESS; `function` is the MPI function that returned it.
inline void check_mpi(int code, const char* function, const MpiCallSite* site = nullptr) {
  if (code == MPI_SUCCESS)
    return;
  throw TransportError(code,
                       std::string(function) + ": MPI must succeed, but it reported \"" +
                           mpi_error_text(code) + "\" (check the network and the other ranks' messages)",
                       site == nullptr ? ErrorContext{} : site->context());
}

/// Memory that MPI may read and write until a nonblocking call is done.
///
/// If the caller gives up before that, by an exception, the memory is leaked on purpose: MPI continues such a
/// call, and cannot be told to leave the memory alone.
template <class Value> class Lent {
public:
  template <class... Arguments>
  explicit Lent(Arguments&&... arguments) : value_(new Value{std::forward<Arguments>(arguments)...}) {}
  ~Lent() {
    if (!back_)
      static_cast<void>(value_.release());
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  [[nodiscard]] Value& operator*() const noexcept { return *value_; }
  [[nodiscard]] Value* operator->() const noexcept { return value_.get(); }
  /// The call is done.
  void take_back() noexcept { back_ = true; }

private:
  std::unique_ptr<Value> value_;
  bool back_ = false;
};

/// Calls `look()` periodically, on a separate thread, until it returns false or the watch is destroyed.
class Watch {
public:
  template <class Look>
  Watch(std::chrono::nanoseconds period, Look look)
      : thread_([this, period, look = std::move(look)]() mutable {
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, period, [this] { return ended_; }) && look()) {
          }
        }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_; ///< Last: it uses the others.
};

} // namespace detail

/// @brief Initialises MPI for this process and finalises it when destroyed; create one, at the start of main.
///
/// Shardwright's ranks communicate from one thread at a time, so MPI_THREAD_SERIALIZED is requested. If MPI
/// provides less, all calls must come from the thread that initialised it.
class MpiEnvironment {
public:
  /// @param finalise_deadline The longest time that the destructor waits for the other ranks to finish.
  /// @param start_deadline The longest time that MPI may take to start all ranks. MPI's startup cannot be
  /// interrupted, so a process that waits longer exits, after one line on stderr.
  /// @throws LifecycleError if MPI is initialised already or was finalised; TransportError with MPI's text.
  explicit MpiEnvironment(std::chrono::nanoseconds finalise_deadline = std::chrono::seconds(60),
                          std::chrono::nanoseconds start_deadline = std::chrono::minutes(2))
      : finalise_deadline_(detail::bounded(finalise_deadline)) {
    start_deadline = detail::bounded(start_deadline);
    if (finalised())
      throw LifecycleError(
          "MpiEnvironment: MPI must not have been finalised (one process initialises MPI once)");
    if (initialised())
      throw LifecycleError(
          "MpiEnvironment: MPI must not be initialised twice (keep one MpiEnvironment, in main)");
    int provided = MPI_THREAD_SINGLE;
    {
      // The first rank reports first, and when it exits the launcher ends those that would say the same: Open
      // MPI does so after a second.
      const auto turn = std::chrono::seconds(2) * std::clamp(detail::LauncherRanks().rank, 0, 8);
      const detail::Watch watch(start_deadline + turn, [start_deadline] {
        detail::write_stderr_line(detail::late_start_sentence(start_deadline));
        std::_Exit(1);
        return false;
      });
      detail::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
                        "MPI_Init_thread");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  /// @brief Finalises MPI, for which all ranks must arrive here.
  ///
  /// If a world of all ranks existed before, a rank that is still running has all the time that it needs, as
  /// long as its process is alive. A rank whose process is gone or stopped, or any rank if there was no such
  /// world, ends the job with an error after the deadline.
  ~MpiEnvironment() {
    // A child process forked by a rank is not a rank.
    if (process_ != ::getpid() || finalised())
      return;
    if (members_.node)
      members_.node->come_to_end();
    std::atomic<bool> lost = false;
    const detail::Watch watch(std::chrono::milliseconds(100), end_watch(lost));
    // MPI_Finalize does not watch the ranks, so all of them meet here first.
    MPI_Request request = MPI_REQUEST_NULL;
    int done = MPI_Ibarrier(MPI_COMM_WORLD, &request) == MPI_SUCCESS ? 0 : 1;
    detail::Waiting waiting(finalise_deadline_);
    while (done == 0 && MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
      waiting.pause();
      if (!members_.node && waiting.expired() && !lost.exchange(true)) {
        const std::string siblings = detail::siblings_text(detail::LauncherRanks());
        detail::write_stderr_line("MpiEnvironment: every rank must reach its end within " +
                                  detail::time_text(finalise_deadline_) + " of this one" +
                                  (siblings.empty() ? "" : ", but " + siblings) +
                                  " (look for a rank that is stuck or still running)");
      }
      if (lost)
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
  }

  /// @brief Lets the end watch the ranks of this node; of several worlds the first is kept, since all ranks
  /// have that one.
  static void watch_at_end(detail::NodeMembers members) {
    if (!members_.node)
      members_ = std::move(members);
  }

  /// @brief Returns whether MPI is ready for use.
  [[nodiscard]] static bool active() { return initialised() && !finalised(); }

  /// @brief Checks that MPI is not finalised: once there is a communicator, nothing else can be wrong.
  /// @throws LifecycleError if it is.
  static void require_not_finalised(std::string_view subject) {
    if (finalised())
      throw LifecycleError(
          std::string(subject) +
          ": MPI must not be finalised yet (let MpiEnvironment outlive the last use of every communicator)");
  }
  /// @brief Checks that MPI is ready for use.
  /// @throws LifecycleError unless MPI is initialised and not finalised.
  static void require(std::string_view subject) {
    require_not_finalised(subject);
    if (!initialised())
      throw LifecycleError(
          std::string(subject) +
          ": MPI must be initialised first (use launch(), or make an MpiEnvironment in main)");
  }

private:
  static bool initialised() {
    int flag = 0;
    MPI_Initialized(&flag);
    return flag != 0;
  }
  static bool finalised() {
    int flag = 0;
    MPI_Finalized(&flag);
    return flag != 0;
  }
  /// Watches the others during the end, on a second thread while this one is inside MPI.
  [[nodiscard]] static std::function<bool()> end_watch(std::atomic<bool>& lost) {
    std::optional<detail::MpiEndWait> others;
    if (members_.node)
      others.emplace(members_, "at the end of the process");
    return [&lost, others = std::move(others)]() mutable {
      const auto verdict =
          others ? others->look([](int rank) { return members_.node->at_end(rank); }) : std::nullopt;
      if (!verdict)
        return true;
      if (members_.node->first_to_tell())
        detail::write_stderr_line("MpiEnvironment: every rank must reach its end, but " + verdict->found +
                                  " (look for the reason there)");
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(500)); // so that the line is output
      lost = true;
      // MPI_Finalize does not return.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::_Exit(1);
      return false;
    };
  }

  inline static detail::NodeMembers members_;
  std::chrono::nanoseconds finalise_deadline_;
  pid_t process_ = ::getpid();
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
