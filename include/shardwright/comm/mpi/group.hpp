// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One MPI group on one rank: its ranks, its channel, and whether it has ended.

#include <shardwright/comm/mpi/agreement.hpp>
#include <shardwright/comm/mpi/deferred_free.hpp>
#include <shardwright/comm/mpi/requests.hpp>
#include <shardwright/comm/mpi/transfer.hpp>
#include <shardwright/comm/mpi/world.hpp>
#include <shardwright/comm/report.hpp>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

class MpiGroup {
public:
  MpiGroup(std::shared_ptr<MpiWorld> world, MpiChannel channel, int rank, std::string name, std::uint64_t id)
      : world_(std::move(world)), channel_(std::move(channel)), rank_(rank), name_(std::move(name)), id_(id),
        scratch_(size()),
        agreement_(rank, size(), world_->node().exchange().entries(id_, channel_.world_ranks)) {
    for (const int member : channel_.world_ranks)
      channel_.processes.push_back(world_->node().readable_process(member));
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() {
    if (may_free())
      DeferredFree::leave(channel_.comm);
  }

  /// Whether MPI communicators can be freed: after a failure messages may still be in flight, and freeing is
  /// collective.
  [[nodiscard]] bool may_free() const noexcept {
    return MpiEnvironment::active() && !ended_ && world_->ended_by() < 0 && world_->may_call();
  }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(channel_.world_ranks.size()); }
  [[nodiscard]] int world_rank(int rank) const {
    return channel_.world_ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Equal on all ranks of the group, and different for every other group.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] MpiWorld& world() const noexcept { return *world_; }
  [[nodiscard]] const std::shared_ptr<MpiWorld>& shared_world() const noexcept { return world_; }
  [[nodiscard]] const MpiChannel& channel() const noexcept { return channel_; }
  [[nodiscard]] MpiScratch& scratch() noexcept { return scratch_; }
  [[nodiscard]] MpiAgreement& agreement() noexcept { return agreement_; }

  /// Number of the next split of this group, equal on all its ranks.
  [[nodiscard]] std::uint64_t next_split() noexcept { return ++splits_; }
  /// First of the four tags of a collective: agreement, explanation and two of data.
  [[nodiscard]] int collective_tag(std::uint64_t sequence) const noexcept {
    // A power of two saves a division.
    const std::uint64_t slots = std::bit_floor(static_cast<std::uint64_t>(world_->user_tags() / 4));
    return 2 * world_->user_tags() + static_cast<int>(sequence & (slots - 1)) * 4;
  }
  [[nodiscard]] MpiCallSite site(const CollectiveCall& call, std::uint64_t sequence) const {
    return {world_rank(rank_), &name_, call.operation, sequence, call.where};
  }

  /// Whether a rank for which a call may wait was last seen on the core of the calling thread.
  [[nodiscard]] bool peer_needs_this_core(const CollectiveCall& call) const noexcept {
    const auto needs = [this](int rank) {
      return rank != rank_ && world_->node().is_on_this_core(world_rank(rank));
    };
    if (sends_or_receives(call.operation))
      return needs(call.root);
    for (int rank = 0; rank < size(); ++rank)
      if (needs(rank))
        return true;
    return false;
  }
  /// Whether a rank is known to have entered a collective of this group, or a later one.
  [[nodiscard]] bool has_entered(std::uint64_t sequence, int world_rank) const {
    const MpiLastCall last = world_->node().last_call(world_rank);
    return last.stage != MpiLastCall::Stage::none && last.group_id == id_ &&
           !sends_or_receives(last.operation) && last.sequence >= sequence;
  }

  /// Publishes a call that begins to the other ranks of the node; `token` identifies it.
  void publish(const CollectiveCall& call, std::uint64_t sequence, const void* token) const noexcept {
    const int peer = sends_or_receives(call.operation) ? world_rank(call.root) : -1;
    world_->publish(call, sequence, peer, id_, name_, token);
  }

  /// Ends the group for this rank, and for the others if they cannot find the failure themselves.
  void end(Failure::Kind kind, std::string sentence, bool tell) noexcept {
    if (ended_)
      return;
    if (tell)
      world_->fail_group(id_, kind, sentence);
    ended_.emplace();
    ended_->kind = kind;
    ended_->rank = world_rank(rank_);
    ended_->sentence = std::move(sentence);
  }

  /// @throws LifecycleError or PeerFailed if the group or its world has ended.
  void require_alive(const CollectiveCall& call, std::uint64_t sequence) {
    MpiEnvironment::require_not_finalised(name_of(call.operation));
    if (world_->finished())
      throw LifecycleError(used_after_launch(call.operation), site(call, sequence).context());
    if (ended_ || told_)
      throw_used_after(site(call, sequence));
    if (const auto failure = failure_elsewhere())
      throw_ended(*failure, site(call, sequence));
  }
  /// The same, without recording that the group's end has been reported.
  void look(const CollectiveCall& call) {
    const bool told = told_;
    try {
      require_alive(call, 0);
    } catch (const Error&) {
      told_ = told;
      throw;
    }
  }

  /// Throws the error that another rank's failure means for a call of this one: PeerFailed once, then
  /// LifecycleError.
  [[noreturn]] void throw_ended(const Failure& failure, const MpiCallSite& site) {
    if (failure.rank == world_rank(rank_) || std::exchange(told_, true))
      throw_used_after(site);
    throw PeerFailed(failure.rank, ended_by(site.operation, failure), site.context());
  }

  /// The first failure of another rank that ends this group's calls.
  [[nodiscard]] std::optional<Failure> failure_elsewhere() const {
    if (const int rank = world_->ended_by(); rank >= 0)
      return world_->node().world_failure(rank);
    if (world_->node().group_failures() == 0)
      return std::nullopt;
    for (const int rank : channel_.world_ranks)
      if (rank != world_rank(rank_))
        if (auto failure = world_->node().group_failure(rank, id_))
          return failure;
    return std::nullopt;
  }

  /// Whether other ranks may have given up a call in flight because of a failure elsewhere.
  /// @throws LifecycleError if they may because of one of this rank.
  [[nodiscard]] bool may_be_given_up(const MpiCallSite& site) const {
    if (ended_)
      throw_used_after(site);
    return failure_elsewhere().has_value();
  }

private:
  [[noreturn]] void throw_used_after(const MpiCallSite& site) const {
    const std::optional<Failure> failure = ended_ ? ended_ : failure_elsewhere();
    throw LifecycleError(used_after_failure(site.operation, failure ? cause_of(*failure) : std::string()),
                         site.context());
  }

  std::shared_ptr<MpiWorld> world_;
  MpiChannel channel_;
  int rank_;
  std::string name_;
  std::uint64_t id_;
  std::uint64_t splits_ = 0;
  MpiScratch scratch_;
  MpiAgreement agreement_;
  std::optional<Failure> ended_;
  bool told_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
