// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs two functions of one rank in turns: while the all_to_all of one is in flight, the other
/// computes.

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Runs pairs of functions, such as the passes of two microbatches, and hides the all_to_alls of each
/// behind the work of the other.
///
/// The two never run at the same time. One runs until it reaches an all_to_all on a communicator from
/// in_turns(): that call is started, and the other function runs until it reaches one, or ends. So the order
/// of all calls is the same on all ranks, and results do not change if the functions write to different data,
/// or to shared data in the order of their turns. An object belongs to its rank's thread; the first run()
/// starts a second thread, which later ones use again.
class Turns {
public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns();

  /// @brief Runs both functions to their ends, `first` on the calling thread and first.
  /// @throws what one of them throws, once the other has reached its next all_to_all and ended there;
  /// LifecycleError inside a run.
  template <class First, class Second> void run(First&& first, Second&& second) {
    const Function second_function = function(second);
    if (runs_)
      throw LifecycleError(
          "Turns: run() must not be called from inside a turn (use another object, or call one after the other)");
    if (!thread_.joinable())
      thread_ = std::thread([this] { serve(); });
    {
      const std::lock_guard lock(mutex_);
      runs_ = true;
      stops_ = false;
      errors_ = {};
      ended_ = {false, false};
      turn_ = 0;
      second_ = second_function;
    }
    take_turn(0, function(first));
    await([this] { return ended_[1]; });
    runs_ = false;
    for (std::exception_ptr& error : errors_)
      if (error)
        std::rethrow_exception(std::exchange(error, nullptr));
  }

  /// @brief Returns whether functions are running in turns.
  [[nodiscard]] bool running() const noexcept { return runs_; }
  /// @brief Lets the other function run until it does the same or ends; false if it has thrown.
  /// @pre running()
  [[nodiscard]] bool pass();

  /// @brief Thrown through a function whose counterpart has thrown; run() does not rethrow it.
  struct Stopped {};

private:
  struct Function {
    void (*call)(void*) = nullptr;
    void* of = nullptr;
  };
  template <class F> [[nodiscard]] static Function function(F& of) noexcept {
    return {[](void* at) { (*static_cast<std::remove_reference_t<F>*>(at))(); },
            const_cast<void*>(static_cast<const void*>(&of))};
  }

  template <class Holds> void await(Holds holds) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, holds);
  }

  /// Runs a function from its first turn to its end, after which the other has all turns.
  void take_turn(int own, Function function) noexcept;

  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::array<bool, 2> ended_{};
  std::array<std::exception_ptr, 2> errors_{};
  Function second_{};
  bool runs_ = false;
  bool stops_ = false; ///< One function has thrown.
  bool leaves_ = false;
  std::thread thread_;
};

/// @brief Decorates a communicator with turns: an all_to_all on it, or on a group split off from it, lets the
/// other function of `turns` run while the data moves.
///
/// Create the mesh from it. Outside a run it has no effect.
[[nodiscard]] HostCommunicator in_turns(HostCommunicator communicator, std::shared_ptr<Turns> turns);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE Turns::~Turns() {
  if (!thread_.joinable())
    return;
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

namespace detail {

/// Starts an all_to_all, and passes the turn to the other function.
class TurnsTransport final : public DecoratedTransport<HostCommunicator> {
public:
  TurnsTransport(HostCommunicator below, std::shared_ptr<Turns> turns)
      : DecoratedTransport(std::move(below)), turns_(std::move(turns)) {}

  void run(const CollectiveCall& call) override {
    if (call.operation != Operation::all_to_all || !turns_->running())
      return below().run(call);
    Pending started = below().start(call);
    const bool goes_on = turns_->pass();
    started.wait();
    if (!goes_on)
      throw Turns::Stopped();
  }

private:
  [[nodiscard]] std::shared_ptr<Transport> around(HostCommunicator part) const override {
    return std::make_shared<TurnsTransport>(std::move(part), turns_);
  }

  std::shared_ptr<Turns> turns_;
};

} // namespace detail

SHARDWRIGHT_INLINE HostCommunicator in_turns(HostCommunicator communicator, std::shared_ptr<Turns> turns) {
  if (!turns)
    return communicator;
  return HostCommunicator(
      std::make_shared<detail::TurnsTransport>(std::move(communicator), std::move(turns)));
}

SHARDWRIGHT_INLINE bool Turns::pass() {
  std::unique_lock lock(mutex_);
  const int own = turn_;
  if (!ended_[static_cast<std::size_t>(1 - own)]) {
    turn_ = 1 - own;
    changed_.notify_all();
    changed_.wait(lock, [&] { return turn_ == own; });
  }
  return !stops_;
}

SHARDWRIGHT_INLINE void Turns::take_turn(int own, Function function) noexcept {
  std::exception_ptr error;
  try {
    if (!stops_)
      function.call(function.of);
  } catch (const Stopped&) { // the other's error says why
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<std::size_t>(own);
    errors_[place] = error;
    stops_ = stops_ || error;
    ended_[place] = true;
    turn_ = 1 - own;
  }
  changed_.notify_all();
}

SHARDWRIGHT_INLINE void Turns::serve() {
  for (;;) {
    await([this] { return leaves_ || (second_.call != nullptr && turn_ == 1); });
    if (leaves_)
      return;
    take_turn(1, std::exchange(second_, {}));
  }
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
