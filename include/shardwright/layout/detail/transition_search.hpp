// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The search for the cheapest moves between two layouts, over the axes that change.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/transition_step.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The changes between two layouts. Axes of a common prefix of a dimension's lists stay where they are;
/// every other axis whose place differs has a slot, and sets of slots are bit masks. Built-in arrays:
/// compilers evaluate them several times faster than std::array.
struct TransitionChange {
  int count = 0;
  int axis[max_axes] = {};         ///< Per slot: its axis in the table.
  int to_dimension[max_axes] = {}; ///< Per slot: the dimension it ends on, or -1.
  int from_sharded = 0;
  int from_partial = 0;
  int to_sharded = 0;
  int to_partial = 0;
  int old_count[max_tensor_rank] = {}; ///< Per dimension: slots of the old list, after the prefix.
  int old_slot[max_tensor_rank][max_axes] = {};
  int new_count[max_tensor_rank] = {}; ///< Per dimension: slots of the new list, after the prefix.
  int new_slot[max_tensor_rank][max_axes] = {};
};

constexpr TransitionChange changes_between(const LayoutValue& from, const LayoutValue& to) {
  TransitionChange out;
  int slot_of[max_axes] = {};
  for (int& slot : slot_of)
    slot = -1;
  const auto slot = [&](int axis) {
    if (slot_of[axis] < 0) {
      out.axis[out.count] = axis;
      out.to_dimension[out.count] = -1;
      slot_of[axis] = out.count++;
    }
    return slot_of[axis];
  };
  for (int d = 0; d < from.tensor_rank; ++d) {
    const AxisSequence& old_list = from.shard(d);
    const AxisSequence& new_list = to.shard(d);
    int same = 0;
    while (same < old_list.count && same < new_list.count && old_list[same] == new_list[same])
      ++same;
    for (int i = same; i < old_list.count; ++i) {
      const int s = slot(old_list[i]);
      out.from_sharded |= 1 << s;
      out.old_slot[d][out.old_count[d]++] = s;
    }
    for (int i = same; i < new_list.count; ++i) {
      const int s = slot(new_list[i]);
      out.to_sharded |= 1 << s;
      out.to_dimension[s] = d;
      out.new_slot[d][out.new_count[d]++] = s;
    }
  }
  for (int axis = 0; axis < max_axes; ++axis) {
    const bool was = from.is_partial(axis);
    const bool is = to.is_partial(axis);
    if (was == is)
      continue;
    const int bit = 1 << slot(axis);
    out.from_partial |= was ? bit : 0;
    out.to_partial |= is ? bit : 0;
  }
  return out;
}

/// Shortest path over the states of the changed axes. Each axis is where it was (digit 0), replicated (1) or
/// at its final place (2), and every move raises some axes: the states, read as numbers to base 3, are
/// visited in increasing order.
template <int changed> class TransitionSearch {
public:
  constexpr TransitionSearch(const LayoutValue& from, const LayoutValue& to, const TransitionChange& change)
      : from_(from), to_(to), change_(change) {
    for (int i = 0, power = 1; i < changed; ++i, power *= 3)
      power_[i] = power;
  }

  constexpr TransitionPlan plan() {
    int start = 0;
    for (int i = 0; i < changed; ++i) {
      const bool was_replicated = ((change_.from_sharded | change_.from_partial) >> i & 1) == 0;
      const bool ends_replicated = ((change_.to_sharded | change_.to_partial) >> i & 1) == 0;
      start += was_replicated ? power_[i] : 0;
      goal_ += ends_replicated ? power_[i] : 2 * power_[i];
    }
    states_[start].cost = 1;
    for (code_ = start; code_ < goal_; ++code_) {
      cost_ = states_[code_].cost;
      // A state that costs as much as a known way to the goal cannot be on a cheaper one.
      if (cost_ != 0 && (states_[goal_].cost == 0 || cost_ < states_[goal_].cost))
        expand();
    }
    return read_back(start);
  }

private:
  using Cost = std::int64_t;
  struct State {
    Cost cost = 0; ///< Cost of the cheapest way here, plus 1; 0 if there is none yet.
    int previous = 0;
    int axes = 0; ///< Slots that take part in the move that leads here.
    StepKind kind = StepKind::slice;
    int dimension = -1;
    int from_dimension = -1;
  };
  /// Bytes first, then the number of collectives, then a preference that makes the choice unique and simple.
  static constexpr Cost bytes_weight = 1 << 16;
  static constexpr Cost collective_weight = 1 << 8;
  /// Bytes of the smallest block: divisible by the size of every group.
  static constexpr Cost unit = 1 << max_changed_axes;
  static constexpr int states = [] {
    int count = 1;
    for (int i = 0; i < changed; ++i)
      count *= 3;
    return count;
  }();

  constexpr void offer(StepKind kind, int axes, int next, Cost price, int dimension, int from_dimension) {
    const Cost cost = cost_ + price;
    State& state = states_[next];
    if (state.cost == 0 || cost < state.cost)
      state = {cost, code_, axes, kind, dimension, from_dimension};
  }

  constexpr void expand() {
    at_old_ = at_rest_ = 0;
    int placed = 0;
    for (int i = 0, rest = code_; i < changed; ++i, rest /= 3) {
      const int digit = rest % 3;
      if (digit == 0)
        at_old_ |= 1 << i;
      else if (digit == 1)
        at_rest_ |= 1 << i;
      else
        placed |= 1 << i;
    }
    block_ = unit << changed;
    for (int sharded = (at_old_ & change_.from_sharded) | (placed & change_.to_sharded); sharded != 0;
         sharded &= sharded - 1)
      block_ /= 2;
    // Per dimension: how many old axes are left (they are its last ones), and which new one comes next.
    for (int d = 0; d < from_.tensor_rank; ++d) {
      int left = 0;
      while (left < change_.old_count[d] && (at_old_ >> change_.old_slot[d][left] & 1) != 0)
        ++left;
      int next = left == 0 ? 0 : change_.new_count[d];
      while (next < change_.new_count[d] && (placed >> change_.new_slot[d][next] & 1) != 0)
        ++next;
      left_[d] = left;
      next_[d] = next;
    }
    if (offer_slice() || offer_keep())
      return;
    for (int d = 0; d < from_.tensor_rank; ++d) {
      if (left_[d] > 0)
        offer_gather(d);
      else if (next_[d] < change_.new_count[d])
        offer_reduce_scatter(d);
    }
    for (int pending = at_old_ & change_.from_partial; pending != 0;)
      pending &= ~offer_all_reduce(pending);
  }

  /// A slice moves nothing, makes every later step smaller and is never undone, so it is always taken first.
  constexpr bool offer_slice() {
    for (int d = 0; d < from_.tensor_rank; ++d) {
      int axes = 0;
      int next = code_;
      for (int p = next_[d]; p < change_.new_count[d]; ++p) {
        const int slot = change_.new_slot[d][p];
        if ((at_rest_ >> slot & 1) == 0)
          break;
        axes |= 1 << slot;
        next += power_[slot];
      }
      if (axes == 0)
        continue;
      offer(StepKind::slice, axes, next, 1, d, -1);
      return true;
    }
    return false;
  }

  constexpr bool offer_keep() {
    const int axes = at_rest_ & change_.to_partial;
    if (axes == 0)
      return false;
    int next = code_;
    for (int i = 0; i < changed; ++i)
      next += (axes >> i & 1) != 0 ? power_[i] : 0;
    offer(StepKind::keep_on_first, axes, next, 1, -1, -1);
    return true;
  }

  /// The last axes of a dimension: all_gather over any number of them, all_to_all of the very last.
  constexpr void offer_gather(int d) {
    const int last = change_.old_slot[d][left_[d] - 1];
    int axes = 0;
    int next = code_;
    for (int i = 1; i <= left_[d]; ++i) {
      const int slot = change_.old_slot[d][left_[d] - i];
      axes |= 1 << slot;
      next += power_[slot];
      offer(StepKind::all_gather, axes, next, priced(block_ * ((1 << i) - 1), 2), d, -1);
    }
    const int target = change_.to_dimension[last];
    if (target >= 0 && target != d && next_[target] < change_.new_count[target] &&
        change_.new_slot[target][next_[target]] == last)
      offer(StepKind::all_to_all, 1 << last, code_ + 2 * power_[last], priced(block_ / 2, 2), target, d);
  }

  constexpr void offer_reduce_scatter(int d) {
    int axes = 0;
    int next = code_;
    Cost group = 1;
    const ReduceOp op = op_of(change_.new_slot[d][next_[d]]);
    for (int p = next_[d]; p < change_.new_count[d]; ++p) {
      const int slot = change_.new_slot[d][p];
      if ((at_old_ & change_.from_partial & 1 << slot) == 0 || op_of(slot) != op)
        return;
      axes |= 1 << slot;
      next += 2 * power_[slot];
      group *= 2;
      offer(StepKind::reduce_scatter, axes, next, priced(block_ / group * (group - 1), 3), d, -1);
    }
  }

  /// An all_reduce takes every axis of its operation that ends replicated, and any of those that end sharded
  /// but whose place is not free yet. Returns the pending axes of that operation.
  constexpr int offer_all_reduce(int pending) {
    int first = 0;
    while ((pending >> first & 1) == 0)
      ++first;
    const ReduceOp op = op_of(first);
    int same = 0;
    int required = 0;
    int optional = 0;
    for (int i = first; i < changed; ++i) {
      if ((pending >> i & 1) == 0 || op_of(i) != op)
        continue;
      same |= 1 << i;
      const int d = change_.to_dimension[i];
      if (d < 0)
        required |= 1 << i;
      else if (next_[d] == change_.new_count[d] || change_.new_slot[d][next_[d]] != i)
        optional |= 1 << i;
    }
    for (int subset = optional;; subset = (subset - 1) & optional) {
      const int axes = required | subset;
      Cost group = 1;
      int next = code_;
      for (int i = first; i < changed; ++i) {
        if ((axes >> i & 1) == 0)
          continue;
        group *= 2;
        next += power_[i];
      }
      if (axes != 0)
        offer(StepKind::all_reduce, axes, next, priced(2 * (block_ / group) * (group - 1), 2), -1, -1);
      if (subset == 0)
        return same;
    }
  }

  static constexpr Cost priced(Cost bytes, Cost preference) {
    return bytes * bytes_weight + collective_weight + preference;
  }
  constexpr ReduceOp op_of(int slot) const { return from_.op(change_.axis[slot]); }

  constexpr TransitionPlan read_back(int start) const {
    TransitionPlan plan;
    for (int code = goal_; code != start; code = states_[code].previous)
      ++plan.count;
    int index = plan.count;
    for (int code = goal_; code != start; code = states_[code].previous) {
      const State& state = states_[code];
      TransitionMove& move = plan.moves[static_cast<std::size_t>(--index)];
      move.kind = state.kind;
      move.dimension = state.dimension;
      move.from_dimension = state.from_dimension;
      const bool from_old = state.kind == StepKind::all_gather || state.kind == StepKind::all_to_all;
      const int d = state.kind == StepKind::all_to_all ? state.from_dimension : state.dimension;
      const int count = d < 0 ? max_axes : (from_old ? change_.old_count[d] : change_.new_count[d]);
      for (int i = 0; i < count; ++i) {
        // Without a dimension: in the order of the table.
        const int slot = d < 0 ? slot_of(i) : (from_old ? change_.old_slot[d][i] : change_.new_slot[d][i]);
        if (slot < 0 || (state.axes >> slot & 1) == 0)
          continue;
        const int axis = change_.axis[slot];
        move.axes.push_back(axis);
        if (state.kind == StepKind::reduce_scatter || state.kind == StepKind::all_reduce)
          move.op = from_.op(axis);
        else if (state.kind == StepKind::keep_on_first)
          move.op = to_.op(axis);
      }
    }
    return plan;
  }
  constexpr int slot_of(int axis) const {
    for (int i = 0; i < changed; ++i)
      if (change_.axis[i] == axis)
        return i;
    return -1;
  }

  const LayoutValue& from_;
  const LayoutValue& to_;
  const TransitionChange& change_;
  State states_[states] = {};
  int power_[changed] = {};
  int goal_ = 0;
  // The state that is being expanded.
  int code_ = 0;
  Cost cost_ = 0;
  Cost block_ = 0;
  int at_old_ = 0;
  int at_rest_ = 0;
  int left_[max_tensor_rank] = {};
  int next_[max_tensor_rank] = {};
};

template <int changed>
constexpr TransitionPlan search_plan(const LayoutValue& from, const LayoutValue& to,
                                     const TransitionChange& change) {
  return TransitionSearch<changed>(from, to, change).plan();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
