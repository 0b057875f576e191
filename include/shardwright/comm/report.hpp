// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Error sentences that all transports share: calls that differ, ranks that are late, communicators
/// that have ended.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/fingerprint.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A started call whose handle was dropped without a wait.
[[nodiscard]] inline std::string dropped_sentence(const CollectiveCall& call, std::uint64_t sequence) {
  return "Pending: a started call must be waited for, but the handle of " + describe(call, sequence) +
         " was dropped (keep it, and call wait() once)";
}

/// A call on a communicator whose failure has already been reported to the caller; the cause may be empty.
[[nodiscard]] inline std::string used_after_failure(Operation operation, const std::string& cause) {
  return std::string(name_of(operation)) +
         ": a communicator must not be used after it has failed (end the program, or launch a new world)" +
         (cause.empty() ? "" : "; it failed because ") + cause;
}
[[nodiscard]] inline std::string used_after_launch(Operation operation) {
  return std::string(name_of(operation)) +
         ": a communicator must not be used after launch() has returned (keep it inside the program)";
}
/// A call ended by another rank's failure.
[[nodiscard]] inline std::string ended_by(Operation operation, const Failure& failure) {
  return std::string(name_of(operation)) + ": every rank of the group must take part, but " +
         cause_of(failure) + " (fix that first)";
}

/// "rank 1: waiting in ...; rank 2: its last operation was ...", as `doing(rank)` says.
template <class Doing>
[[nodiscard]] std::string whereabouts(const std::vector<int>& world_ranks, Doing&& doing) {
  std::string out;
  for (const int rank : world_ranks)
    out += (out.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + doing(rank);
  return out;
}

inline constexpr std::string_view same_order_advice =
    " (let all ranks issue the same calls in the same order, or raise LaunchOptions::deadline)";

/// A call of one rank of a group, in words.
struct IssuedCall {
  int world_rank = 0;
  std::string text;
};

/// "ranks 0 and 2 issued barrier() #2; rank 1 issued all_reduce(...) #2".
[[nodiscard]] inline std::string issued_text(const std::vector<IssuedCall>& calls) {
  std::string out;
  std::vector<bool> told(calls.size(), false);
  for (std::size_t first = 0; first < calls.size(); ++first) {
    if (told[first])
      continue;
    std::vector<int> alike;
    for (std::size_t other = first; other < calls.size(); ++other)
      if (calls[other].text == calls[first].text) {
        alike.push_back(calls[other].world_rank);
        told[other] = true;
      }
    out += (out.empty() ? "" : "; ") + ranks_text(alike) + " issued " + calls[first].text;
  }
  return out;
}

/// The first thing in which the calls of all ranks differ; empty if it is not in the calls.
template <class CallOf, class WorldRank>
[[nodiscard]] std::string difference_of(int ranks, CallOf&& call_of, WorldRank&& world_rank) {
  for (int rank = 1; rank < ranks; ++rank)
    if (std::string what = difference(call_of(0), call_of(rank), ranks); !what.empty())
      return what;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      const std::size_t sent = call_of(from).in_block(to).count();
      const std::size_t expected = call_of(to).out_block(from).count();
      if (sent != expected)
        return "rank " + std::to_string(world_rank(from)) + " sends " + std::to_string(sent) +
               " elements to rank " + std::to_string(world_rank(to)) + ", which expects " +
               std::to_string(expected);
    }
  return {};
}

/// Ranks that issued different calls; `what` names the difference, if known.
[[nodiscard]] inline std::string mismatch_sentence(const std::string& group, const std::string& what,
                                                   const std::vector<IssuedCall>& calls) {
  return "all ranks of group " + group + " must issue the same call" +
         (what.empty() ? " with blocks that match, but " : ", but " + what + ": ") + issued_text(calls) +
         " (let every rank take the same path to this call)";
}

/// The two sides of a message, as world ranks, if their elements differ.
[[nodiscard]] inline std::string message_mismatch(int from, const CollectiveCall& send,
                                                  std::uint64_t send_sequence, int to,
                                                  const CollectiveCall& receive,
                                                  std::uint64_t receive_sequence) {
  return std::string("both sides of a message must agree on ") +
         (send.element != receive.element ? "the element type"
          : send.count != receive.count   ? "the count"
                                          : "the tag") +
         ", but rank " + std::to_string(from) + " issued " + describe(send, send_sequence) + " and rank " +
         std::to_string(to) + " issued " + describe(receive, receive_sequence) + " (make them equal)";
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
