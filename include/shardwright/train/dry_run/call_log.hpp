// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A log of a rank's calls, in order.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/observe/link_cost.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/core/hash.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One call of a rank.
struct RecordedCall {
  std::string group;          ///< Its name: the axes of a mesh, such as "dp,tp".
  std::uint64_t group_id = 0; ///< The same on all ranks of a group, and different for every other group.
  Operation operation = Operation::barrier;
  ReduceOp reduce_op = ReduceOp::sum;
  ElementType element = ElementType::uint8;
  int peer = -1;         ///< Root of a broadcast, or the other side of a message, as a world rank; else none.
  int tag = 0;           ///< Of a message.
  std::size_t bytes = 0; ///< Of the larger of this rank's buffers.
  bool started = false;  ///< Whether the rank continued meanwhile.
  SourceLocation where{};

  /// @brief Everything but the source location.
  friend bool operator==(const RecordedCall& left, const RecordedCall& right) noexcept {
    return left.group == right.group && left.group_id == right.group_id &&
           left.operation == right.operation && left.reduce_op == right.reduce_op &&
           left.element == right.element && left.peer == right.peer && left.tag == right.tag &&
           left.bytes == right.bytes && left.started == right.started;
  }
};

/// @brief The calls of one rank, on all its groups. Not thread-safe.
class CallLog {
public:
  [[nodiscard]] const std::vector<RecordedCall>& calls() const noexcept { return calls_; }
  void clear() noexcept { calls_.clear(); }

  /// @brief A group of this rank.
  struct Group {
    std::uint64_t id;
    std::string name;
  };
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return known_; }

  /// @brief Adds a group of these world ranks; returns its id.
  template <class WorldRank>
  [[nodiscard]] std::uint64_t add_group(const std::string& name, int size, WorldRank world_rank) {
    std::uint64_t members = static_cast<std::uint64_t>(size);
    for (int rank = 0; rank < size; ++rank)
      members = detail::mixed(members, static_cast<std::uint64_t>(world_rank(rank)));
    known_.push_back({detail::mixed(members, static_cast<std::uint64_t>(groups_[members]++)), name});
    return known_.back().id;
  }
  /// @param world_rank maps a rank of the group to its world rank
  template <class WorldRank>
  void add(const CollectiveCall& call, const std::string& group, std::uint64_t group_id, int ranks,
           WorldRank world_rank, bool started) {
    const Operation operation = call.operation;
    const bool has_peer = operation == Operation::broadcast || detail::sends_or_receives(operation);
    calls_.push_back({group, group_id, operation, detail::reduces(operation) ? call.reduce_op : ReduceOp::sum,
                      call.element, has_peer ? world_rank(call.root) : -1, call.tag,
                      larger_side(call, ranks) * size_of(call.element), started, call.where});
  }

private:
  [[nodiscard]] static std::size_t larger_side(const CollectiveCall& call, int ranks) {
    const bool in = detail::has_in_blocks(call.operation), out = detail::has_out_blocks(call.operation);
    if (!in && !out)
      return call.count;
    return std::max(in ? detail::elements_of(call.in_blocks, call.count, ranks) : 0,
                    out ? detail::elements_of(call.out_blocks, call.count, ranks) : 0);
  }

  std::vector<RecordedCall> calls_;
  std::vector<Group> known_;
  std::map<std::uint64_t, int> groups_; // how many have the same ranks
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
