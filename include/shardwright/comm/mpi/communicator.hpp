// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A communicator whose ranks are MPI processes.

#include <shardwright/comm/communicator.hpp>
#include <shardwright/comm/mpi/queue.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A group of MPI processes with the library's own collectives over nonblocking messages.
///
/// Reductions have the fixed order of ReductionOrder and give the same bits as ThreadCommunicator. Calls on
/// one group complete in the order in which they were issued; started calls move on whenever any call of this
/// process polls or waits. A send ends when its receive has begun. A rank calls from one thread at a time.
/// After an error of any call the world has ended for this rank, and the buffers of that call must live until
/// MPI is finalised.
class MpiCommunicator : public TypedOperations<MpiCommunicator> {
public:
  /// @brief A handle without a group.
  MpiCommunicator() = default;

  /// @brief Collective over all processes of the job: the group of all of them.
  /// @throws LifecycleError before MPI is initialised or after it is finalised; DeadlineExceeded;
  /// TransportError.
  [[nodiscard]] static MpiCommunicator world(const MpiOptions& options = {}) {
    auto shared = std::make_shared<detail::MpiWorld>(options);
    const detail::MpiChannel& channel = shared->channel();
    const int rank = shared->rank();
    return MpiCommunicator(
        std::make_shared<State>(std::move(shared), channel, rank, "world", std::uint64_t{1}));
  }

  /// @brief Returns whether the handle has a group.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// @brief This rank in the group, from 0.
  [[nodiscard]] int rank() const { return group().rank(); }
  /// @brief Ranks in the group.
  [[nodiscard]] int size() const { return group().size(); }
  /// @brief Rank in the world of a rank of this group.
  [[nodiscard]] int world_rank(int rank) const { return group().world_rank(rank); }
  /// @brief Name of the group for messages.
  [[nodiscard]] std::string name() const { return state_ ? state_->group.name() : std::string(); }
  /// @brief The longest time that a call may wait.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return group().world().options().deadline; }

  /// @brief Executes a call. @throws the typed errors, within the deadline.
  void run(const CollectiveCall& call) {
    const detail::MpiWorld::Inside inside(group().world(), group().site(call, 0));
    state_->queue.begin(call).finish();
  }

  /// @brief Starts a call; no allocation once as many calls have been in flight before.
  [[nodiscard]] Pending start(const CollectiveCall& call) {
    const detail::MpiWorld::Inside inside(group().world(), group().site(call, 0));
    return Pending(std::shared_ptr<PendingOperation>(state_, &state_->queue.begin(call)));
  }

  /// @brief Collective: the ranks of one colour form a group, ordered by key, then by rank; a negative colour
  /// joins none.
  [[nodiscard]] MpiCommunicator split(int colour, int key, std::string name = {},
                                      SourceLocation where = SourceLocation::current()) {
    CollectiveCall meet;
    meet.operation = Operation::split;
    meet.where = where;
    run(meet);
    const std::array<int, 2> own{colour, key};
    std::vector<int> all(2 * static_cast<std::size_t>(size()));
    all_gather(own, all, where);
    return joined(colour, all, std::move(name));
  }

  /// @brief Ends the whole world with a reason: every waiting rank wakes with PeerFailed.
  void abort(const std::string& reason) { group().world().fail(detail::Failure::Kind::aborted, reason); }

  /// @brief Throws what the call would throw because the group has ended; waits for nothing.
  void require_alive(const CollectiveCall& call) {
    if (group().world().time_to_look_around())
      group().world().look_around();
    group().look(group().site(call, 0));
  }

  /// @brief Returns the state that launch() needs beside the calls.
  [[nodiscard]] detail::MpiWorld& shared_world() const { return group().world(); }

private:
  struct State {
    template <class... Arguments>
    explicit State(Arguments&&... arguments) : group(std::forward<Arguments>(arguments)...), queue(group) {}
    detail::MpiGroup group;
    detail::MpiQueue queue;
  };

  explicit MpiCommunicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

  [[nodiscard]] detail::MpiGroup& group() const {
    if (!state_)
      throw LifecycleError(
          "MpiCommunicator: the handle must have a group (use what world() or split() returned to a member)");
    return state_->group;
  }

  /// The new group talks over a duplicate of this group's channel, which can be made within a deadline.
  MpiCommunicator joined(int colour, const std::vector<int>& all, std::string name) {
    detail::MpiWorld& world = group().world();
    const std::uint64_t number = group().next_split();
    const int own_rank = rank();
    detail::MpiChannel channel;
    channel.comm = world.duplicate(group().channel().comm);
    std::vector<std::pair<int, int>> members;
    for (int rank = 0; rank < size(); ++rank)
      if (all[2 * static_cast<std::size_t>(rank)] == colour)
        members.emplace_back(all[2 * static_cast<std::size_t>(rank) + 1], rank);
    std::stable_sort(members.begin(), members.end());
    if (colour < 0) {
      MPI_Comm_free(&channel.comm);
      return {};
    }
    int own = 0;
    for (const auto& [key, member] : members) {
      if (member == own_rank)
        own = static_cast<int>(channel.addresses.size());
      channel.addresses.push_back(group().channel().addresses[static_cast<std::size_t>(member)]);
      channel.world_ranks.push_back(world_rank(member));
    }
    const std::uint64_t id =
        detail::mixed(detail::mixed(group().id(), number), static_cast<std::uint64_t>(colour));
    if (name.empty())
      name = this->name() + "/" + std::to_string(colour);
    return MpiCommunicator(
        std::make_shared<State>(group().shared_world(), std::move(channel), own, std::move(name), id));
  }

  std::shared_ptr<State> state_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
