// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's side of a group of thread ranks: executes collectives and messages, and words their
/// failures.

#include <shardwright/comm/threads/exchange.hpp>
#include <shardwright/comm/threads/group.hpp>
#include <shardwright/comm/threads/group_member.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank of a ThreadGroup. Collectives run one at a time, on the rank's thread or on its worker.
class ThreadMember : public GroupMember {
public:
  ThreadMember(std::shared_ptr<ThreadGroup> group, int rank)
      : GroupMember(group, rank), group_(*group), exchange_(size()) {}

  /// Executes a collective on the calling thread.
  void execute(const CollectiveCall& call, const Patience& patience, const SplitRequest* request = nullptr) {
    const std::uint64_t sequence = ++sequence_;
    const Recording recording(*this, call, sequence);
    // After the end nobody waits in meet(), so that this rank's next call but one would be shown in the slot
    // that a slow rank, whose part others did, still compares. While the group lives, that rank has entered
    // the call between.
    if (group_.ended())
      raise(call, sequence);
    ThreadSlot* const slots = group_.slots(sequence);
    slots[rank()].show(call, rank(), size(), sequence, world().check());
    slots[rank()].request = request;
    meet(call, sequence, patience);
    if (world().check())
      compare(call, sequence, slots, patience);
    const Timing timing(call.times);
    if (call.operation == Operation::barrier)
      return;
    if (call.operation == Operation::split)
      return;
    if (world().crowded()) {
      exchange_.prepare(call);
      exchange_for_all(slots, sequence);
      await_release(call, patience);
    } else {
      exchange_.run(slots, rank());
      part(call, patience);
    }
  }

  /// Executes a split: like a collective, with one more meeting while the new groups are handed over.
  [[nodiscard]] std::shared_ptr<ThreadGroup> split(const CollectiveCall& call, const SplitRequest& request,
                                                   const Patience& patience, int& new_rank) {
    execute(call, patience, &request);
    const ThreadSlot* const slots = group_.slots(sequence_);
    std::vector<int> members;
    for (int r = 0; r < size(); ++r)
      if (slots[r].request->colour == request.colour)
        members.push_back(r);
    const int leader = members.front();
    std::stable_sort(members.begin(), members.end(),
                     [slots](int a, int b) { return slots[a].request->key < slots[b].request->key; });
    new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    if (leader == rank() && request.colour >= 0)
      create_part(members, request);
    part(call, patience);
    std::shared_ptr<ThreadGroup> out = request.colour >= 0 ? group_.part(leader) : nullptr;
    part(call, patience);
    group_.part(rank()).reset();
    if (request.colour >= 0 && !out)
      throw TransportError(0, "split: the leader of the new group must have memory for it (free some)",
                           context(call, sequence_));
    return out;
  }

private:
  /// Notes the times of a collective's exchange for whoever asks.
  class Timing {
  public:
    explicit Timing(CallTimes* times) : times_(times) {
      if (times_ != nullptr)
        times_->begin();
    }
    ~Timing() {
      if (times_ != nullptr)
        times_->end();
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

  private:
    CallTimes* times_;
  };

  /// The meeting before data moves.
  void meet(const CollectiveCall& call, std::uint64_t sequence, const Patience& patience) {
    if (size() == 1)
      return;
    const auto say = [&] { say_long_wait(call, sequence, group_.absent(sequence)); };
    switch (group_.meet(rank(), sequence, patience, say)) {
    case ThreadGroup::Meeting::complete:
      return;
    case ThreadGroup::Meeting::ended:
      raise(call, sequence);
    case ThreadGroup::Meeting::late:
      break;
    }
    if (group_.give_up(sequence, late(call, sequence)))
      raise(call, sequence);
  }

  /// Where ranks share cores, those that run do the parts of those that wait for a core, which then find
  /// everything done: half as many switches of threads. Parts whose buffers lie in this core's caches come
  /// first.
  void exchange_for_all(const ThreadSlot* slots, std::uint64_t sequence) {
    ++released_;
    for (const bool near : {true, false})
      for (int step = 0; step < size(); ++step) {
        const int part = (rank() + step) % size();
        if (world().balance().together(world_rank(rank()), world_rank(part)) != near ||
            !group_.claim(part, sequence))
          continue;
        exchange_.run(slots, part);
        group_.let_go(part, released_);
      }
  }

  /// The meeting after data has moved.
  void part(const CollectiveCall& call, const Patience& patience) {
    group_.let_go(rank(), ++released_);
    await_release(call, patience);
  }

  /// Waits until every rank's part is done. A peer that does not come may still be at work on this rank's
  /// buffers, so there is no error to go on from: the process ends instead.
  void await_release(const CollectiveCall& call, const Patience& patience) {
    if (size() == 1)
      return;
    const auto limit = std::max<std::chrono::nanoseconds>(2 * world().deadline(), std::chrono::seconds(60));
    if (group_.await_release(released_, patience, limit))
      return;
    std::fprintf(
        stderr,
        "shardwright: %s: a peer stopped while it was moving data of this rank (group %s, rank %d, at %s); the process ends because its buffers can no longer be trusted\n",
        std::string(name_of(call.operation)).c_str(), name(), world_rank(rank()), call.where.text().c_str());
    std::abort();
  }

  /// All ranks come to the same verdict, and stay until everyone has worded it, because it quotes the others'
  /// calls.
  void compare(const CollectiveCall& call, std::uint64_t sequence, const ThreadSlot* slots,
               const Patience& patience) {
    if (consistent(slots, size())) {
      if (!buffers_clash(slots, size()))
        return;
      const std::string sentence = clash_sentence(group_, slots);
      part(call, patience);
      throw InvalidArgument(std::string(name_of(call.operation)) + ": " + sentence, context(call, sequence));
    }
    const std::string sentence = mismatch_sentence(group_, slots, sequence);
    part(call, patience);
    disagree(sentence, call, sequence);
  }

  void create_part(const std::vector<int>& members, const SplitRequest& request) noexcept {
    try {
      std::vector<int> world_ranks;
      for (const int member : members)
        world_ranks.push_back(world_rank(member));
      const std::string name = request.name->empty()
                                   ? std::string(this->name()) + "/" + std::to_string(request.colour)
                                   : *request.name;
      group_.part(rank()) =
          std::make_shared<ThreadGroup>(group_.shared_world(), std::move(world_ranks), name);
    } catch (...) {
      group_.part(rank()) = nullptr;
    }
  }

  ThreadGroup& group_;
  std::uint64_t sequence_ = 0;
  std::uint64_t released_ = 0;
  ThreadExchange exchange_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
