// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sentences that thread ranks find for a deadline, a mismatch, or buffers that clash between
/// ranks.

#include <shardwright/comm/threads/group.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "2.5 s".
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// Whether all ranks issued one call.
[[nodiscard]] inline bool consistent(const ThreadSlot* slots, int ranks) noexcept {
  bool equal = true;
  std::uint64_t unpaired = 0;
  for (int r = 0; r < ranks; ++r) {
    equal = equal && slots[r].common == slots[0].common;
    unpaired += slots[r].unpaired;
  }
  return equal && unpaired == 0;
}

/// Whether one rank writes where another reads or writes. All pairs are looked at, so worlds are small enough
/// or it is left out; outputs in rows are left out as well, since ranks may share a buffer row by row.
template <class Report>
bool for_clash(const ThreadSlot* slots, int ranks, Report report) {
  constexpr int most_ranks = 16;
  if (ranks > most_ranks)
    return false;
  for (int a = 0; a < ranks; ++a) {
    if (!slots[a].dense || slots[a].out.empty())
      continue;
    for (int b = 0; b < ranks; ++b) {
      if (a == b)
        continue;
      const bool output = slots[b].dense && slots[a].out.overlaps(slots[b].out);
      if (output || slots[a].out.overlaps(slots[b].in)) {
        report(a, b, output);
        return true;
      }
    }
  }
  return false;
}

[[nodiscard]] inline bool buffers_clash(const ThreadSlot* slots, int ranks) {
  return for_clash(slots, ranks, [](int, int, bool) {});
}

template <class Member>
[[nodiscard]] std::string clash_sentence(const Member& member, const ThreadSlot* slots) {
  std::string out;
  for_clash(slots, member.size(), [&](int a, int b, bool output) {
    out = "every rank must write to memory of its own, but the output of rank " +
          std::to_string(member.world_rank(a)) + " overlaps the " + (output ? "output" : "input") +
          " of rank " + std::to_string(member.world_rank(b)) +
          " (thread ranks share one address space: allocate inside the program, once per rank)";
  });
  return out;
}

/// The ranks with what each of them called, equal calls together.
template <class Member>
[[nodiscard]] std::string mismatch_sentence(const Member& member, const ThreadSlot* slots,
                                            std::uint64_t sequence) {
  const int ranks = member.size();
  std::string what;
  for (int r = 1; r < ranks && what.empty(); ++r)
    what = difference(*slots[0].call, *slots[r].call, ranks);
  for (int s = 0; s < ranks && what.empty(); ++s)
    for (int r = 0; r < ranks && what.empty(); ++r)
      if (slots[s].call->in_block(r).count() != slots[r].call->out_block(s).count())
        what = "rank " + std::to_string(member.world_rank(s)) + " sends " +
               std::to_string(slots[s].call->in_block(r).count()) + " elements to rank " +
               std::to_string(member.world_rank(r)) + ", which expects " +
               std::to_string(slots[r].call->out_block(s).count());
  std::string calls;
  std::vector<bool> told(static_cast<std::size_t>(ranks), false);
  for (int r = 0; r < ranks; ++r) {
    if (told[static_cast<std::size_t>(r)])
      continue;
    const std::string text = describe(*slots[r].call, sequence);
    std::vector<int> alike;
    for (int s = r; s < ranks; ++s)
      if (describe(*slots[s].call, sequence) == text) {
        alike.push_back(member.world_rank(s));
        told[static_cast<std::size_t>(s)] = true;
      }
    calls += (calls.empty() ? "" : "; ") + ranks_text(alike) + " issued " + text;
  }
  return "all ranks of group " + std::string(member.name()) + " must issue the same call, but " + what +
         ": " + calls + " (let every rank take the same path to this call)";
}

template <class World>
[[nodiscard]] std::string cycle_text(World& world, int rank) {
  const std::vector<int> cycle = world.wait_cycle(rank);
  if (cycle.empty())
    return {};
  std::string out = "; they wait in a cycle: ";
  for (const int each : cycle)
    out += "rank " + std::to_string(each) + " -> ";
  out += "rank " + std::to_string(cycle.front());
  std::string places;
  for (const int each : cycle)
    places += (places.empty() ? " (rank " : "; rank ") + std::to_string(each) + " is " +
              world.recorder(each).describe();
  return out + places + ")";
}

template <class Member>
[[nodiscard]] Failure late_collective(const Member& member, const CollectiveCall& call,
                                      std::uint64_t sequence) {
  ThreadWorld& world = member.world();
  Failure out;
  out.kind = Failure::Kind::deadline;
  out.rank = member.world_rank(member.rank());
  out.sequence = sequence;
  out.missing = member.group().absent(sequence);
  out.sentence = "every rank of group " + std::string(member.name()) + " must enter " +
                 describe(call, sequence) + " within " + seconds_text(world.deadline()) + ", but " +
                 ranks_text(out.missing) + " did not come: " + world.describe(out.missing) +
                 cycle_text(world, out.rank) +
                 " (let all ranks issue the same calls in one order, or raise LaunchOptions::deadline)";
  return out;
}

template <class Member>
[[nodiscard]] Failure late_message(const Member& member, const ThreadMessage& message) {
  ThreadWorld& world = member.world();
  Failure out;
  out.kind = Failure::Kind::deadline;
  out.rank = member.world_rank(member.rank());
  out.missing = {member.world_rank(message.call.root)};
  const std::string offered = member.group().mailbox().offered(message);
  const bool send = message.call.operation == Operation::send;
  out.sentence =
      describe(message.call, message.sequence) + " on group " + member.name() + " must meet its " +
      (send ? "receive" : "send") + " within " + seconds_text(world.deadline()) + ", but " +
      (offered.empty() ? "there is none" : "the other side has only " + offered) + "; " +
      world.describe(out.missing) + cycle_text(world, out.rank) +
      " (pair every send with a receive of the same tag, and start one of two that cross asynchronously)";
  return out;
}

/// The failure of a group. One that was found while an exception was on its way gives that exception a moment
/// to arrive at launch(), since it is the first cause. The rank that throws does not wait for itself.
template <class Member>
[[nodiscard]] FailurePointer first_cause(const Member& member) {
  FailurePointer failure = member.group().failure();
  if (!failure->unwinding || failure->rank == member.world_rank(member.rank()))
    return failure;
  constexpr int looks = 200;
  for (int look = 0; look < looks; ++look) {
    if (const FailurePointer cause = member.world().failure())
      return cause;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return failure;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
