// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Predicts the memory and the work of a program on one rank of a world of any size, without the other
/// ranks.

#include <shardwright/train/dry_run/counting_target.hpp>
#include <shardwright/train/dry_run/dry_run_record.hpp>
#include <shardwright/train/dry_run/recording_transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The memory and the work of a program on one rank.
struct DryRun {
  int rank = 0;
  MemoryTable memory;                 ///< Of its pools, at their peak.
  std::vector<MemoryHolder> holders;  ///< Its holders at that moment, the largest first.
  std::vector<RecordedCall> calls;    ///< The calls to other ranks, in order.
  std::vector<CallLog::Group> groups; ///< The groups to which the rank belongs.
  KernelBytes kernel_bytes;           ///< Bytes that kernels move, by label.
  double flops = 0;                   ///< Floating-point operations of its matrix products and attention.
};

/// @brief Runs `program(world)` as rank `rank` of an imaginary world of `ranks`.
///
/// The program must use `Counting<Target>` for its tensors: they have shapes, but neither memory nor kernels,
/// so any size fits. Everything else is the real code. Values that the host reads are 1. Cost: some
/// microseconds for each operation.
/// @throws what the program throws; InvalidArgument for a rank that is not in the world.
template <class Program> [[nodiscard]] DryRun dry_run(int ranks, int rank, Program&& program) {
  const auto record = std::make_shared<detail::DryRunRecord>();
  struct Entered {
    explicit Entered(detail::DryRunRecord* own)
        : before(std::exchange(detail::MemoryListener::current(), own)),
          purpose_before(std::exchange(detail::memory_purpose(), {})) {}
    ~Entered() {
      detail::MemoryListener::current() = before;
      detail::memory_purpose() = purpose_before;
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    detail::MemoryListener* before;
    detail::MemoryPurpose purpose_before;
  } const entered(record.get());
  std::forward<Program>(program)(recording_world(ranks, rank, record->log));
  return {rank,
          record->peak(),
          record->holders_at_peak(),
          record->log->calls(),
          record->log->groups(),
          record->kernel_bytes,
          record->flops};
}

/// @brief In a dry run, discards calls, bytes and operations so far, such as those of a first step; elsewhere
/// does nothing. Memory continues to be counted.
inline void count_anew() {
  if (detail::DryRunRecord* const record = detail::DryRunRecord::current()) {
    record->log->clear();
    record->kernel_bytes.clear();
    record->flops = 0;
  }
}

namespace detail {

/// "all_reduce of 4096 bytes at model.cpp:12".
[[nodiscard]] inline std::string text_of(const RecordedCall& call) {
  std::string out = std::string(name_of(call.operation)) + " of " + std::to_string(call.bytes) + " bytes";
  if (call.peer >= 0)
    out += (call.operation == Operation::receive ? " from rank "
            : call.operation == Operation::send  ? " to rank "
                                                 : " of rank ") +
           std::to_string(call.peer);
  return out + call.where.text_after(" at ");
}

/// Whether two ranks of a group make the same collective; blocks of uneven shards may differ.
[[nodiscard]] inline bool same_collective(const RecordedCall& left, const RecordedCall& right) {
  const bool equal_blocks = left.operation == Operation::all_reduce || left.operation == Operation::broadcast;
  return left.operation == right.operation && left.reduce_op == right.reduce_op &&
         left.element == right.element && left.peer == right.peer &&
         (!equal_blocks || left.bytes == right.bytes);
}

/// The calls of one kind of a rank: its collectives on a group, or its messages to or from one rank.
struct CallSequence {
  int rank;
  std::vector<const RecordedCall*> calls;
};

/// The first place where two sequences differ, in a sentence; empty if they agree.
template <class Same>
[[nodiscard]] std::string first_difference(const CallSequence& left, const CallSequence& right,
                                           const std::string& group, Same same) {
  const std::size_t common = std::min(left.calls.size(), right.calls.size());
  std::size_t at = 0;
  while (at < common && same(*left.calls[at], *right.calls[at]))
    ++at;
  if (at == left.calls.size() && at == right.calls.size())
    return {};
  const auto side = [at](const CallSequence& sequence) {
    return "rank " + std::to_string(sequence.rank) +
           (at < sequence.calls.size() ? " " + text_of(*sequence.calls[at]) : std::string(" none"));
  };
  return "call " + std::to_string(at + 1) + " on " + group + ": " + side(left) + ", " + side(right);
}

/// The calls of several ranks as they are compared: collectives by group, messages by sender and receiver.
struct GroupedCalls {
  struct Group {
    std::string name;
    std::vector<CallSequence> collectives; ///< Of each of the ranks that belongs to it.
  };
  std::map<std::uint64_t, Group> groups;
  std::map<std::tuple<std::uint64_t, int, int>, std::array<CallSequence, 2>> messages; ///< Group, from, to.

  explicit GroupedCalls(std::span<const DryRun> runs) {
    for (const DryRun& run : runs) {
      for (const CallLog::Group& each : run.groups) {
        Group& group = groups[each.id];
        group.name = each.name;
        group.collectives.push_back({run.rank, {}});
      }
      for (const RecordedCall& call : run.calls) {
        Group& group = groups[call.group_id];
        if (call.operation != Operation::send && call.operation != Operation::receive) {
          group.collectives.back().calls.push_back(&call);
          continue;
        }
        const bool sends = call.operation == Operation::send;
        auto& sides = messages[{call.group_id, sends ? run.rank : call.peer, sends ? call.peer : run.rank}];
        sides[0].rank = sends ? run.rank : call.peer;
        sides[1].rank = sends ? call.peer : run.rank;
        sides[sends ? 0 : 1].calls.push_back(&call);
      }
    }
  }
};

[[nodiscard]] inline bool was_run(std::span<const DryRun> runs, int rank) {
  return std::any_of(runs.begin(), runs.end(), [rank](const DryRun& run) { return run.rank == rank; });
}

} // namespace detail

/// @brief Calls of some of the ranks of a world that `call_differences` can or cannot compare.
struct ComparedCalls {
  std::string group;      ///< The axes of a mesh, such as "dp,tp".
  bool messages = false;  ///< Whether they are messages, or else collectives.
  std::vector<int> ranks; ///< Ranks whose calls are compared; a single one has no counterpart.
  std::size_t calls = 0;  ///< Of the rank that has most.
};

/// @brief The calls that `call_differences` compares: collectives of each group to which several ranks
/// belong, and the messages between two of them. An entry with a single rank holds calls that it cannot
/// compare.
[[nodiscard]] inline std::vector<ComparedCalls> compared_calls(std::span<const DryRun> runs) {
  const detail::GroupedCalls grouped(runs);
  std::vector<ComparedCalls> out;
  for (const auto& [id, group] : grouped.groups) {
    ComparedCalls all{group.name, false, {}, 0};
    for (const detail::CallSequence& each : group.collectives) {
      all.ranks.push_back(each.rank);
      all.calls = std::max(all.calls, each.calls.size());
    }
    if (all.calls > 0)
      out.push_back(std::move(all));
  }
  for (const auto& [key, sides] : grouped.messages) {
    ComparedCalls both{grouped.groups.at(std::get<0>(key)).name, true, {}, 0};
    for (const detail::CallSequence& side : sides)
      if (detail::was_run(runs, side.rank)) {
        both.ranks.push_back(side.rank);
        both.calls = std::max(both.calls, side.calls.size());
      }
    out.push_back(std::move(both));
  }
  return out;
}

/// @brief Finds differences in the calls of the ranks of a world or their order, and returns a sentence for
/// each group with a difference.
///
/// Collectives are compared on every group that contains several of the ranks, messages if both sides are
/// among them: `compared_calls` says which these are. Empty if these calls agree: for these ranks, and for
/// the values that a dry run reads.
[[nodiscard]] inline std::vector<std::string> call_differences(std::span<const DryRun> runs) {
  const detail::GroupedCalls grouped(runs);
  std::vector<std::string> out;
  for (const auto& [id, group] : grouped.groups)
    for (std::size_t i = 1; i < group.collectives.size(); ++i)
      if (std::string text = detail::first_difference(group.collectives[0], group.collectives[i], group.name,
                                                      detail::same_collective);
          !text.empty())
        out.push_back(std::move(text));
  for (const auto& [key, sides] : grouped.messages) {
    if (!detail::was_run(runs, sides[0].rank) || !detail::was_run(runs, sides[1].rank))
      continue;
    // Messages match by tag, not by order.
    auto sorted = sides;
    for (detail::CallSequence& side : sorted)
      std::stable_sort(
          side.calls.begin(), side.calls.end(),
          [](const RecordedCall* left, const RecordedCall* right) { return left->tag < right->tag; });
    if (std::string text = detail::first_difference(
            sorted[0], sorted[1], grouped.groups.at(std::get<0>(key)).name,
            [](const RecordedCall& left, const RecordedCall& right) {
              return left.tag == right.tag && left.bytes == right.bytes && left.element == right.element;
            });
        !text.empty())
      out.push_back(std::move(text));
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
