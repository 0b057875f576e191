// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Messages between thread ranks: the side that comes second copies straight from buffer to buffer.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/observe/flight_recorder.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/threads/wait_point.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One side of a message: a send or a receive that has been posted.
struct ThreadMessage {
  enum class State : std::uint8_t { posted, taken, done, mismatched };
  CollectiveCall call{};
  int rank = 0; ///< Of the side that posts, in its group; the peer is `call.root`.
  std::uint64_t sequence = 0;
  FlightRecorder::Ticket ticket = 0;
  std::optional<CollectiveCall> met; ///< The other side's call if they disagree; set before the state.
  std::uint64_t met_sequence = 0;
  std::atomic<State> state{State::posted};
  ThreadMessage* next = nullptr; ///< In its queue.

  [[nodiscard]] bool over() const noexcept {
    const State now = state.load(std::memory_order_seq_cst);
    return now == State::done || now == State::mismatched;
  }
};

/// Posted messages of a group that have not been matched yet.
class ThreadMailbox {
public:
  /// Moves the data of a pair, a send and its receive, on the thread of the side that came second; does not
  /// throw.
  using Carry = std::function<void(ThreadMessage& send, ThreadMessage& receive)>;

  ThreadMailbox(int ranks, Carry carry)
      : ranks_(static_cast<std::size_t>(ranks)), carry_(std::move(carry)), waiting_(2 * ranks_ * ranks_),
        points_(ranks_) {}

  /// Matches a message with the oldest one of the other side under the same tag, and copies; otherwise keeps
  /// it.
  void post(ThreadMessage& message) {
    ThreadMessage* other = nullptr;
    {
      const std::lock_guard lock(mutex_);
      other = matching(message);
      if (other == nullptr) {
        ThreadMessage** end = &queue(message, message.call.operation);
        while (*end != nullptr)
          end = &(*end)->next;
        message.next = nullptr;
        *end = &message;
        return;
      }
      other->state.store(ThreadMessage::State::taken, std::memory_order_seq_cst);
    }
    ThreadMessage& send = message.call.operation == Operation::send ? message : *other;
    ThreadMessage& receive = message.call.operation == Operation::send ? *other : message;
    deliver(send, receive);
  }

  /// Removes an unmatched message; false if its other side is already copying.
  [[nodiscard]] bool withdraw(ThreadMessage& message) noexcept {
    const std::lock_guard lock(mutex_);
    for (ThreadMessage** at = &queue(message, message.call.operation); *at != nullptr; at = &(*at)->next)
      if (*at == &message) {
        *at = message.next;
        return true;
      }
    return false;
  }

  /// Whether a message is still unmatched.
  [[nodiscard]] bool holds(int rank, Operation operation, int peer, std::uint64_t sequence) noexcept {
    ThreadMessage like;
    like.rank = rank;
    like.call.operation = operation;
    like.call.root = peer;
    const std::lock_guard lock(mutex_);
    for (const ThreadMessage* at = queue(like, operation); at != nullptr; at = at->next)
      if (at->sequence == sequence)
        return true;
    return false;
  }

  /// The wait point of a rank for its messages.
  [[nodiscard]] WaitPoint& point(int rank) noexcept { return points_[static_cast<std::size_t>(rank)].point; }

  void wake() noexcept {
    for (Point& each : points_)
      each.point.notify();
  }

  /// Tags that the other side offers, for the report about an unmatched message.
  [[nodiscard]] std::string offered(const ThreadMessage& message) {
    const std::lock_guard lock(mutex_);
    std::string out;
    for (const ThreadMessage* at = queue(message, opposite(message)); at != nullptr; at = at->next)
      out += (out.empty() ? "" : "; ") + describe(at->call, at->sequence);
    return out;
  }

private:
  struct alignas(128) Point {
    WaitPoint point;
  };

  [[nodiscard]] static Operation opposite(const ThreadMessage& message) noexcept {
    return message.call.operation == Operation::send ? Operation::receive : Operation::send;
  }

  /// The queue of one operation on the channel of a message.
  [[nodiscard]] ThreadMessage*& queue(const ThreadMessage& message, Operation operation) noexcept {
    const bool sends = message.call.operation == Operation::send;
    const auto from = static_cast<std::size_t>(sends ? message.rank : message.call.root);
    const auto to = static_cast<std::size_t>(sends ? message.call.root : message.rank);
    return waiting_[(from * ranks_ + to) * 2 + (operation == Operation::send ? 0 : 1)];
  }

  [[nodiscard]] ThreadMessage* matching(const ThreadMessage& message) noexcept {
    for (ThreadMessage** at = &queue(message, opposite(message)); *at != nullptr; at = &(*at)->next)
      if ((*at)->call.tag == message.call.tag) {
        ThreadMessage* found = *at;
        *at = found->next;
        return found;
      }
    return nullptr;
  }

  void deliver(ThreadMessage& send, ThreadMessage& receive) noexcept {
    // Nothing of a message may be touched after its state is set: its owner may reuse it from then on.
    const int from = send.rank;
    const int to = receive.rank;
    auto state = ThreadMessage::State::done;
    if (send.call.element != receive.call.element || send.call.count != receive.call.count) {
      // Each side builds its own error: from here to the end nothing may fail, since the other side waits.
      state = ThreadMessage::State::mismatched;
      send.met = receive.call;
      send.met_sequence = receive.sequence;
      receive.met = send.call;
      receive.met_sequence = send.sequence;
    } else {
      carry_(send, receive);
    }
    receive.state.store(state, std::memory_order_seq_cst);
    send.state.store(state, std::memory_order_seq_cst);
    point(from).notify();
    point(to).notify();
  }

  const std::size_t ranks_;
  const Carry carry_;
  std::mutex mutex_;
  std::vector<ThreadMessage*> waiting_;
  std::vector<Point> points_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
