// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ranks that are threads of one process and read one another's buffers directly.

#include <shardwright/comm/communicator.hpp>
#include <shardwright/comm/threads/queue.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A group of thread ranks. Reductions add in a fixed order, so equal runs give equal bits.
///
/// A collective moves every byte once, straight between the ranks' buffers, strided blocks included, and
/// costs two meetings of the ranks (a barrier one). A call that fails ends the group: every rank's wait wakes
/// with a typed error. A started collective runs on a worker thread of the rank and group; messages need
/// none.
class ThreadCommunicator : public TypedOperations<ThreadCommunicator> {
public:
  /// @brief A handle without a group.
  ThreadCommunicator() = default;

  /// @brief One handle per rank of a new world; rank r's is for the thread that plays rank r. launch() calls
  /// this.
  [[nodiscard]] static std::vector<ThreadCommunicator> world(int ranks, const LaunchOptions& options = {}) {
    auto shared = std::make_shared<detail::ThreadWorld>(ranks, options);
    std::vector<int> members(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      members[static_cast<std::size_t>(rank)] = rank;
    auto group = std::make_shared<detail::ThreadGroup>(std::move(shared), std::move(members), "world");
    std::vector<ThreadCommunicator> out;
    out.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      out.push_back(ThreadCommunicator(std::make_shared<State>(group, rank)));
    return out;
  }

  /// @brief Returns whether the handle has a group.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// @brief This rank in the group, from 0.
  [[nodiscard]] int rank() const { return state().member.rank(); }
  /// @brief Ranks in the group.
  [[nodiscard]] int size() const { return state().member.size(); }
  /// @brief Rank in the world of a rank of this group.
  [[nodiscard]] int world_rank(int rank) const { return state().member.world_rank(rank); }
  /// @brief Name of the group for messages.
  [[nodiscard]] std::string name() const { return state().member.name(); }
  /// @brief The longest time that a call waits for its peers.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return state().member.world().deadline(); }

  /// @brief Executes a call on the calling thread, after the started ones.
  void run(const CollectiveCall& call) {
    State& own = state();
    own.member.admit(call);
    if (detail::sends_or_receives(call.operation)) {
      detail::ThreadMessage message;
      own.member.post(message, call);
      own.member.finish(message, own.patience);
      return;
    }
    const Inside inside(own, call);
    own.queue.drain();
    own.member.world().settle(own.member.world_rank(own.member.rank()));
    own.member.execute(call, own.patience);
  }

  /// @brief Starts a call; its buffers stay untouched until the Pending is waited for.
  [[nodiscard]] Pending start(const CollectiveCall& call) {
    State& own = state();
    own.member.admit(call);
    if (detail::sends_or_receives(call.operation))
      return Pending(std::shared_ptr<PendingOperation>(state_, own.queue.post(call)));
    const Inside inside(own, call);
    return Pending(std::shared_ptr<PendingOperation>(state_, own.queue.start(call)));
  }

  /// @brief Collective: the ranks of one colour form a group, ordered by key, then by rank; a negative colour
  /// joins none.
  [[nodiscard]] ThreadCommunicator split(int colour, int key, const std::string& name = {},
                                         SourceLocation where = SourceLocation::current()) {
    State& own = state();
    CollectiveCall call;
    call.operation = Operation::split;
    call.where = where;
    own.member.admit(call);
    const Inside inside(own, call);
    own.queue.drain();
    int rank = 0;
    auto group = own.member.split(call, {colour, key, &name}, own.patience, rank);
    return group ? ThreadCommunicator(std::make_shared<State>(std::move(group), rank)) : ThreadCommunicator();
  }

  /// @brief Ends the whole world with a reason: every waiting rank wakes with PeerFailed.
  void abort(const std::string& reason) { state().member.abort(reason); }

  /// @brief Throws what the call would throw because the group has ended; waits for nothing.
  void require_alive(const CollectiveCall& call) { state().member.require_alive(call); }

  /// @brief The state that all ranks of the launch share; for launch().
  [[nodiscard]] detail::ThreadWorld& shared_world() const { return state().member.world(); }

private:
  struct State {
    State(std::shared_ptr<detail::ThreadGroup> group, int rank)
        : member(std::move(group), rank), queue(member), patience(member.world().patience()) {}
    detail::ThreadMember member;
    detail::ThreadQueue queue;
    detail::Patience patience;
    std::atomic<bool> inside{false};
  };

  /// Two threads in one rank's collectives would break their order without a sign.
  class Inside {
  public:
    Inside(State& state, const CollectiveCall& call) : state_(state) {
      if (state_.inside.exchange(true, std::memory_order_acquire))
        throw LifecycleError(
            std::string(name_of(call.operation)) +
                ": one rank's collectives on a group must come from one thread at a time (use one communicator per thread, or the _async forms)",
            state_.member.context(call, 0));
    }
    ~Inside() { state_.inside.store(false, std::memory_order_release); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    State& state_;
  };

  explicit ThreadCommunicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

  [[nodiscard]] State& state() const {
    if (!state_)
      throw LifecycleError(
          "ThreadCommunicator: the handle must have a group (use what launch() or split() returned to a member)");
    return *state_;
  }

  std::shared_ptr<State> state_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
