// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ranks that are MPI processes, with the library's own collectives over nonblocking messages.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/mpi/deferred_free.hpp>
#include <shardwright/comm/mpi/operation.hpp>
#include <shardwright/comm/mpi/subgroup.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// One rank of a group of MPI processes, and the order of its calls.
///
/// Collectives run one after another; messages run concurrently, except those with the same direction, peer
/// and tag. Started calls progress whenever any call of this process polls or waits. A send ends when its
/// receive has begun. A rank calls from one thread at a time. After an error in any call the group has ended
/// for this rank, and the buffers of that call must live until MPI is finalised. Call records are reused, so
/// calls allocate nothing in steady state.
class MpiTransport final : public Transport,
                           public std::enable_shared_from_this<MpiTransport>,
                           private MpiCalls {
public:
  MpiTransport(std::shared_ptr<MpiWorld> world, MpiChannel channel, int rank, std::string name,
               std::uint64_t id)
      : group_(std::move(world), std::move(channel), rank, std::move(name), id) {
    group_.world().enter(this);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override {
    group_.world().detach(this);
    group_.world().leave(this);
    if (exported_ != MPI_COMM_NULL && group_.may_free())
      DeferredFree::leave(exported_);
  }

  [[nodiscard]] int rank() const noexcept override { return group_.rank(); }
  [[nodiscard]] int size() const noexcept override { return group_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return group_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return group_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override {
    return group_.world().options().deadline;
  }

  void run(const CollectiveCall& call) override {
    const MpiCallGuard guard(group_.world().funneled(), [&] { return group_.site(call, 0); });
    begin(call, true).finish();
  }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    const MpiCallGuard guard(group_.world().funneled(), [&] { return group_.site(call, 0); });
    return Pending(std::shared_ptr<PendingOperation>(shared_from_this(), &begin(call, false)));
  }

  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation where) override {
    const GroupPlace place = rule(rank());
    const CollectiveCall meet = call_of(Operation::split, where);
    run(meet);
    const std::array<int, 2> own{place.colour, place.key};
    std::vector<int> all(2 * static_cast<std::size_t>(size()));
    HostCommunicator(shared_from_this()).all_gather(own, all, {}, where);
    return joined(place.colour, all, std::move(name), group_.site(meet, collectives_begun_));
  }

  void abort(const std::string& reason) override { group_.world().fail(Failure::Kind::aborted, reason); }

  void require_alive(const CollectiveCall& call) override {
    if (group_.world().time_to_look_around())
      group_.world().look_around();
    group_.look(call);
  }

  [[nodiscard]] MpiWorld& world() const noexcept { return group_.world(); }

  /// The group as an MPI communicator; collective the first time, and the same one afterwards.
  [[nodiscard]] MPI_Comm exported(SourceLocation where) {
    if (exported_ != MPI_COMM_NULL)
      return exported_;
    const CollectiveCall meet = call_of(Operation::barrier, where);
    run(meet);
    const MpiCallSite site = group_.site(meet, collectives_begun_);
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    exported_ = create_mpi_subgroup(group_, all, site);
    // The library's own channels return errors; other code expects MPI's default.
    check_mpi(MPI_Comm_set_errhandler(exported_, MPI_ERRORS_ARE_FATAL), "MPI_Comm_set_errhandler", &site);
    return exported_;
  }

private:
  /// Checks a call, enqueues it, and advances it as far as possible.
  MpiOperation& begin(const CollectiveCall& call, bool spans_live) {
    const bool message = sends_or_receives(call.operation);
    std::uint64_t& last = message ? messages_begun_ : collectives_begun_;
    group_.require_alive(call, last + 1);
    validate(call, group_, last + 1);
    if (message && call.tag >= group_.world().user_tags())
      throw InvalidArgument(std::string(name_of(call.operation)) + ": the tag must be below " +
                                std::to_string(group_.world().user_tags()) + ", but it is " +
                                std::to_string(call.tag) + " (this MPI library has no more tags)",
                            group_.site(call, last + 1).context());
    MpiOperation& operation = unused();
    operation.begin(call, ++last, spans_live);
    if (idle())
      group_.world().attach(this);
    (message ? messages_ : collectives_).push_back(&operation);
    progress();
    return operation;
  }

  bool progress() noexcept override {
    if (idle())
      return false;
    bool moved = false;
    while (!collectives_.empty()) {
      moved = (!collectives_.front()->done() && collectives_.front()->advance()) || moved;
      if (!collectives_.front()->done())
        break;
      collectives_.erase(collectives_.begin());
    }
    for (std::size_t i = 0; i < messages_.size();) {
      if (!messages_[i]->done() && first_of_its_kind(i))
        moved = messages_[i]->advance() || moved;
      if (messages_[i]->done())
        messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    if (idle())
      group_.world().detach(this);
    return moved;
  }

  void add_waits(const MpiNode& node, std::vector<int>& ranks) override {
    if (&node != &group_.world().node())
      return;
    if (!collectives_.empty())
      collectives_.front()->add_waits(ranks);
    for (MpiOperation* const message : messages_)
      message->add_waits(ranks);
  }

  [[nodiscard]] bool lacks(const MpiLastCall& call, int world_rank) const override {
    if (call.group_id != group_.id())
      return false;
    if (!sends_or_receives(call.operation))
      return collectives_begun_ < call.sequence;
    return std::none_of(messages_.begin(), messages_.end(), [&](const MpiOperation* message) {
      const CollectiveCall& own = message->call();
      return own.operation != call.operation && own.tag == call.tag &&
             group_.world_rank(own.root) == world_rank;
    });
  }

  [[nodiscard]] bool idle() const noexcept { return collectives_.empty() && messages_.empty(); }

  [[nodiscard]] MpiOperation& unused() {
    for (const auto& one : all_)
      if (one->done() && !one->in_use())
        return *one;
    return *all_.emplace_back(std::make_unique<MpiOperation>(group_, collectives_));
  }

  /// MPI matches messages of one peer and tag in the order of posting, so each is posted after the previous
  /// one has ended.
  [[nodiscard]] bool first_of_its_kind(std::size_t index) const noexcept {
    const CollectiveCall& own = messages_[index]->call();
    for (std::size_t i = 0; i < index; ++i) {
      const CollectiveCall& other = messages_[i]->call();
      if (other.operation == own.operation && other.root == own.root && other.tag == own.tag)
        return false;
    }
    return true;
  }

  /// The group of this rank's colour, given the colours and keys of all ranks of this one.
  [[nodiscard]] std::shared_ptr<MpiTransport> joined(int colour, const std::vector<int>& all,
                                                     std::string name, const MpiCallSite& site) {
    const std::uint64_t number = group_.next_split();
    if (colour < 0)
      return nullptr;
    const auto key = [&all](int rank) { return all[2 * static_cast<std::size_t>(rank) + 1]; };
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank)
      if (all[2 * static_cast<std::size_t>(rank)] == colour)
        members.push_back(rank);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key(a) < key(b); });
    MpiChannel channel{create_mpi_subgroup(group_, members, site), {}, {}};
    for (const int member : members)
      channel.world_ranks.push_back(world_rank(member));
    const auto own = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    const std::uint64_t id = mixed(mixed(group_.id(), number), static_cast<std::uint64_t>(colour));
    if (name.empty())
      name = group_.name() + "/" + std::to_string(colour);
    return std::make_shared<MpiTransport>(group_.shared_world(), std::move(channel), own, std::move(name),
                                          id);
  }

  MpiGroup group_;
  std::uint64_t collectives_begun_ = 0;
  std::uint64_t messages_begun_ = 0;
  std::vector<std::unique_ptr<MpiOperation>> all_;
  std::vector<MpiOperation*> collectives_; ///< In order; only the first moves.
  std::vector<MpiOperation*> messages_;
  MPI_Comm exported_ = MPI_COMM_NULL;
};

/// The whole of an MPI communicator as a group; `ranks_per_node` as in MpiWorld.
[[nodiscard]] inline std::shared_ptr<MpiTransport>
make_mpi_transport(MPI_Comm comm, const LaunchOptions& options, int ranks_per_node) {
  auto world = std::make_shared<MpiWorld>(comm, options, ranks_per_node);
  const MpiChannel& channel = world->channel();
  const int rank = world->rank();
  return std::make_shared<MpiTransport>(std::move(world), channel, rank, "world", std::uint64_t{1});
}

} // namespace detail

/// @brief Collective over an MPI communicator of the program: creates a world of its ranks, in its order.
/// Waits for all of them.
///
/// Only duplicates of `comm` are used, and MPI is neither initialised nor finalised; to free MPI's memory,
/// the last handle must be gone before MPI_Finalize. MPI must provide MPI_THREAD_SERIALIZED or more if
/// threads other than the one that initialised it make calls. Several worlds may coexist, disjoint or not; a
/// failure ends the calls of one world, and not the job. Reductions have the fixed order of ReductionOrder
/// and give the same bits as thread ranks.
/// @throws LifecycleError unless MPI is ready for use; InvalidArgument for MPI_COMM_NULL, an
/// intercommunicator or options out of range; DeadlineExceeded; TransportError.
[[nodiscard]] inline HostCommunicator world_from(MPI_Comm comm, const LaunchOptions& options = {}) {
  MpiEnvironment::require("world_from");
  if (comm == MPI_COMM_NULL)
    throw InvalidArgument(
        "world_from: the MPI communicator must contain this process, but it is MPI_COMM_NULL (call world_from on its members only)");
  int between_groups = 0;
  detail::check_mpi(MPI_Comm_test_inter(comm, &between_groups), "MPI_Comm_test_inter");
  if (between_groups != 0)
    throw InvalidArgument(
        "world_from: the MPI communicator must be of one group, but it is an intercommunicator (merge it by MPI_Intercomm_merge)");
  int size = 0;
  detail::check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (options.ranks != 0 && options.ranks != size)
    throw InvalidArgument(
        "world_from: the MPI communicator must have as many ranks as requested, but it has " +
        std::to_string(size) + " and LaunchOptions::ranks is " + std::to_string(options.ranks) +
        " (leave it at 0)");
  if (options.deadline <= std::chrono::nanoseconds::zero())
    throw InvalidArgument("world_from: the deadline must be positive (five minutes is the default)");
  return HostCommunicator(detail::make_mpi_transport(comm, options, 0));
}

/// @brief world_from() all processes of the job.
[[nodiscard]] inline HostCommunicator mpi_world(const LaunchOptions& options = {}) {
  return world_from(MPI_COMM_WORLD, options);
}

/// @brief Collective over the group of a handle: returns an MPI communicator with the same ranks in the same
/// order, for calls to other libraries.
///
/// It belongs to the group: it is created once, and freed with the group's last handle. Its errors are fatal,
/// as by MPI's default, and its calls have no deadline.
/// @throws InvalidArgument if the ranks are not processes under MPI; and the errors of a barrier of the
/// group.
[[nodiscard]] inline MPI_Comm mpi_communicator(const HostCommunicator& group,
                                               SourceLocation where = SourceLocation::current()) {
  auto* const transport = dynamic_cast<detail::MpiTransport*>(&group.undecorated());
  if (transport == nullptr)
    throw InvalidArgument("mpi_communicator: the ranks of group " + group.name() +
                          " must be processes under MPI, but they are not (start the program by mpirun)");
  return transport->exported(where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
