// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank's side of a group of thread ranks: executes collectives and messages, and reports their
/// failures.

#include <shardwright/comm/threads/exchange.hpp>
#include <shardwright/comm/threads/group.hpp>
#include <shardwright/comm/threads/group_member.hpp>
#include <shardwright/comm/threads/process_end.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
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
  ///
  /// Everything that needs memory comes before the first meeting, or failure is handled: a rank that left
  /// between the meetings would leave the others waiting for it while they access its buffers.
  void execute(const CollectiveCall& call, const Patience& patience, const CallExtras& extras) {
    const std::uint64_t sequence = ++sequence_;
    if (!extras.started)
      begun_ = sequence;
    const Recording recording(*this, begin(call, sequence, extras.started));
    // After the group's end no rank waits in meet(), so this rank's next call but one would be published in
    // the slot that a slow rank, whose part others did, is still comparing. While the group is alive, that
    // rank has entered the call in between.
    if (group_.ended())
      raise(call, sequence);
    exchange_.prepare(call);
    ThreadSlot* const slots = group_.slots(sequence);
    slots[rank()].show(call, rank(), size(), sequence, world().check());
    slots[rank()].extras = extras;
    slots[rank()].core = world().known_core(world_rank(rank()));
    meet(call, sequence, patience);
    if (world().check())
      compare(call, sequence, slots, patience);
    const Timing timing(call.times);
    if (call.operation == Operation::barrier || call.operation == Operation::split)
      return;
    if (world().crowded() || small_on_one_core(slots, size())) {
      exchange_for_all(slots, sequence);
      await_release(call, patience);
    } else {
      exchange_.run(slots, rank());
      meet_after(call, patience);
    }
  }

  /// The rank starts a collective, which a worker executes after those before it.
  void note_started() noexcept { group_.note_started(rank(), ++begun_); }

  /// Executes a split: like a collective, with one more meeting while the new groups are distributed.
  [[nodiscard]] std::shared_ptr<ThreadGroup> split(const CollectiveCall& call, const SplitRequest& request,
                                                   const Patience& patience, int& new_rank) {
    std::vector<int> members;
    members.reserve(static_cast<std::size_t>(size()));
    execute(call, patience, {.request = &request});
    const ThreadSlot* const slots = group_.slots(sequence_);
    for (int r = 0; r < size(); ++r)
      if (slots[r].extras.request->colour == request.colour)
        members.push_back(r);
    const int leader = members.front();
    std::stable_sort(members.begin(), members.end(), [slots](int a, int b) {
      return slots[a].extras.request->key < slots[b].extras.request->key;
    });
    new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    std::exception_ptr unable;
    if (leader == rank() && request.colour >= 0) {
      try {
        create_subgroup(members, request);
      } catch (...) {
        unable = std::current_exception();
        fail_out_of_memory();
      }
    }
    meet_after(call, patience);
    std::shared_ptr<ThreadGroup> out = request.colour >= 0 ? group_.subgroup(leader) : nullptr;
    meet_after(call, patience);
    group_.subgroup(rank()).reset();
    if (unable)
      std::rethrow_exception(unable);
    if (request.colour >= 0 && !out)
      raise(call, sequence_);
    return out;
  }

private:
  /// Records the times of a collective's exchange if requested.
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
    const auto notify = [&](bool first) {
      if (never_ends())
        static_cast<void>(group_.give_up(sequence, late(call, sequence, true)));
      else if (first)
        print_long_wait(call, sequence, [&] { return group_.absent(sequence); });
    };
    switch (group_.meet(rank(), sequence, patience, notify)) {
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

  /// Where ranks share cores, running ranks do the work of those that wait for a core, which then find
  /// everything done; that halves the number of context switches.
  void exchange_for_all(const ThreadSlot* slots, std::uint64_t sequence) {
    ++released_;
    for (int step = 0; step < size(); ++step) {
      const int part = (rank() + step) % size();
      if (!group_.claim(part, sequence))
        continue;
      exchange_.run(slots, part);
      group_.release(part, released_);
    }
  }

  /// The meeting after data has moved.
  void meet_after(const CollectiveCall& call, const Patience& patience) {
    group_.release(rank(), ++released_);
    await_release(call, patience);
  }

  /// Waits until every rank's part is done. A peer that does not arrive may still access this rank's buffers,
  /// so it is not possible to recover: the process ends instead. No fault in a program leads here.
  void await_release(const CollectiveCall& call, const Patience& patience) {
    if (size() == 1)
      return;
    const auto limit = std::max<std::chrono::nanoseconds>(2 * world().deadline(), std::chrono::seconds(60));
    if (group_.await_release(rank(), released_, patience, limit))
      return;
    abort_process([&] {
      std::vector<int> late;
      for (int other = 0; other < size(); ++other)
        if (!group_.has_released(other, released_))
          late.push_back(world_rank(other));
      return std::string(name_of(call.operation)) +
             ": every rank must finish its part of the data movement, but " + ranks_text(late) +
             " did not within " + time_text(limit) + ": " + whereabouts_of(late) +
             "; the process ends, because the ranks' buffers can no longer be trusted (look for a stopped thread) [" +
             context(call, sequence_).text() + "]";
    });
  }

  /// All ranks reach the same verdict, and stay until everyone has built its error, because it quotes the
  /// others' calls.
  void compare(const CollectiveCall& call, std::uint64_t sequence, const ThreadSlot* slots,
               const Patience& patience) {
    if (consistent(slots, size())) {
      if (!buffers_clash(slots, size()))
        return;
      const std::string sentence = worded([&] { return clash_sentence(group_, slots); }, call, patience);
      throw InvalidArgument(std::string(name_of(call.operation)) + ": " + sentence, context(call, sequence));
    }
    disagree(worded([&] { return mismatch_sentence(group_, slots, sequence); }, call, patience), call,
             sequence);
  }
  /// The report about the calls, which the others keep published until this rank has met them again, whether
  /// it has a report or not.
  template <class Words>
  [[nodiscard]] std::string worded(Words&& words, const CollectiveCall& call, const Patience& patience) {
    std::string out;
    std::exception_ptr unable;
    try {
      out = words();
    } catch (...) {
      unable = std::current_exception();
    }
    meet_after(call, patience);
    if (!unable)
      return out;
    fail_out_of_memory();
    std::rethrow_exception(unable);
  }

  void create_subgroup(const std::vector<int>& members, const SplitRequest& request) {
    std::vector<int> world_ranks;
    for (const int member : members)
      world_ranks.push_back(world_rank(member));
    const std::string name = request.name->empty()
                                 ? std::string(this->name()) + "/" + std::to_string(request.colour)
                                 : *request.name;
    group_.subgroup(rank()) =
        std::make_shared<ThreadGroup>(group_.shared_world(), std::move(world_ranks), name);
  }

  ThreadGroup& group_;
  std::uint64_t sequence_ = 0; ///< Of the last collective that has been executed.
  std::uint64_t begun_ = 0;    ///< The same, or started.
  std::uint64_t released_ = 0;
  ThreadExchange exchange_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
