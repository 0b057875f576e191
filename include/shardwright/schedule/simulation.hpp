// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Simulates a schedule with the messages of a pipeline runner.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/fixed_array.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/proof.hpp>
#include <shardwright/schedule/stage_message.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/stage_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The step and message that a blocked rank waits for.
struct MessageWait {
  int step = -1;          ///< Place in its order; -1 if it waits for nothing.
  Action action{};        ///< Its action there; if it is sending, the action whose result is being sent.
  StageMessage message{}; ///< The message that has to arrive.
  bool sending = false;   ///< Whether it is the sender, which waits until the message is received.

  /// Rank that it waits for; -1 if it waits for nothing.
  [[nodiscard]] constexpr int on() const noexcept {
    return step < 0 ? -1 : sending ? message.to_rank : message.from_rank;
  }
};

/// Simulates the orders of all ranks as a runner with the same MessageWindow would execute them.
///
/// `Source` has placement(), microbatches() and cursor(rank), whose `bool next(Step&)` returns the steps in
/// order. `Costs` has `send` and `of(step)`, which may ask when a step starts. Every rank runs until it must
/// wait. Times are computed only by maxima and sums, so they do not depend on which rank is processed first.
/// Memory: a few hundred bytes per rank, and one byte per stage and microbatch. Time: constant per action;
/// and few statements, because compilers count them against a limit.
template <class Source, class Costs = PassCosts> class Simulation {
public:
  constexpr Simulation(const Source& source, const Costs& costs, const MessageWindow& window)
      : placement_(source.placement()), stages_(placement_, source.microbatches()), costs_(costs),
        kept_(std::max(window.receive_ahead, 0) + 1), slots_(std::max(window.sends_in_flight, 1)),
        passed_(stages_.cells()), ranks_(static_cast<std::size_t>(placement_.ranks)),
        planned_(ranks_.size * static_cast<std::size_t>(kept_)),
        sends_(ranks_.size * static_cast<std::size_t>(4 * slots_)),
        slot_of_(slots_ > searched_slots ? 2 * passed_.size : 1), runnable_(ranks_.size),
        left_(3 * static_cast<std::int64_t>(passed_.size)) {
    for (int rank = static_cast<int>(ranks_.size); rank-- > 0; wake(rank))
      ranks_.items[rank].cursor = source.cursor(rank);
  }

  /// Runs until every rank has ended or none can continue; calls `watch(rank, step, start, end)`.
  template <class Watch> constexpr void run(const Watch& watch) {
    while (runnable_count_ > 0 && failure_.fault == ScheduleFault::none)
      advance(runnable_.items[--runnable_count_], watch);
  }

  /// Passes of all microbatches through all stages that were not run, a B counted as two.
  [[nodiscard]] constexpr std::int64_t left() const noexcept { return left_; }
  /// The first action in a wrong position.
  [[nodiscard]] constexpr const ScheduleFailure& failure() const noexcept { return failure_; }
  [[nodiscard]] constexpr const RankProof& proof_of(int rank) const { return ranks_.items[rank].proof; }
  /// When a rank could do more: after its last pass so far, or when the last send could start.
  [[nodiscard]] constexpr double free_from(int rank) const { return ranks_.items[rank].now; }
  /// Whether a send had to wait for an earlier one; if not, more sends in flight change nothing.
  [[nodiscard]] constexpr bool window_was_full() const noexcept { return full_; }

  /// In `watch` and `of`: when the input of an action of the step came from another rank; 0 if it did not.
  [[nodiscard]] constexpr double arrived(int rank, int action) const {
    return planned_.items[rank * kept_ + ranks_.items[rank].current % kept_].in[action].ended;
  }
  /// Returns what a rank waits for once `run` has returned.
  [[nodiscard]] constexpr MessageWait wait_of(int rank) const {
    const Rank& me = ranks_.items[rank];
    const Planned& planned = planned_.items[rank * kept_ + me.current % kept_];
    if (me.part == Part::receiving && me.current < me.fetched)
      for (int i = 0; i < planned.step.size(); ++i)
        if (planned.in[i].ended < 0)
          return {me.current, planned.step[i], message_of(planned.in[i].key), false};
    for (int i = 0; i < 4 * slots_; ++i)
      if (const Message& out = sends_.items[4 * slots_ * rank + i]; out.ended < 0) {
        const StageMessage message = message_of(out.key);
        return {me.current, action_of(message), message, true};
      }
    return {};
  }

private:
  using Cursor = decltype(std::declval<const Source&>().cursor(0));

  /// A send or a receive: its content, when its side was ready, and when it ended.
  struct Message {
    std::int64_t key =
        -1; ///< Twice the index of the stage and microbatch that produce it, plus 1 for a gradient.
    double ready = 0;
    double ended = 0; ///< Negative while it has not.
  };

  /// A step that has been read but not done, with the messages that its actions wait for.
  struct Planned {
    Step step{};
    const StagePlace* at[2] = {};
    std::int64_t index[2] = {}; ///< Of stage and microbatch.
    Message in[2] = {};
  };

  enum class Part : std::uint8_t { beginning, receiving, sending, sending_second };

  struct Rank {
    Cursor cursor{};
    RankProof proof{};
    int fetched = 0; ///< Steps read, at most kept_ past the current one.
    int current = 0;
    Part part = Part::beginning;
    bool queued = false;
    bool ended = false; ///< Whether the cursor is at its end.
    double now = 0;     ///< End of its last pass, whose sends may start then.
    int kept = 0;       ///< Microbatches whose W is still to come.
    int kept_until_input_gradient = 0;
    int sent[4] = {}; ///< Per channel: activations and gradients, each there and back.
  };

  // Per pass: bits of what it does (1 forward, 2 input, 4 weight gradient) and of what it needs in its stage;
  // stage and bits that it needs of the neighbouring stage; and what it adds to the microbatches that are
  // kept.
  static constexpr int does[4] = {1, 6, 2, 4};
  static constexpr int needs[4] = {0, 1, 1, 2};
  static constexpr int from[4] = {-1, 1, 1, 0};
  static constexpr int needs_from[4] = {1, 2, 2, 0};
  static constexpr int keeps[4] = {1, -1, 0, -1};
  static constexpr int keeps_until_input_gradient[4] = {1, -1, -1, 0};
  static constexpr int searched_slots = 16; // of a channel; more are found in a table

  [[nodiscard]] constexpr StageMessage message_of(std::int64_t key) const {
    return *stage_message(placement_, static_cast<int>(key / 2 / stages_.microbatches()),
                          static_cast<int>(key / 2 % stages_.microbatches()), key % 2 == 1);
  }
  constexpr void wake(int rank) {
    if (!ranks_.items[rank].queued)
      runnable_.items[runnable_count_++] = rank;
    ranks_.items[rank].queued = true;
  }
  constexpr bool fail(ScheduleFault fault, int rank, int step, const Action& action, const Action& needed) {
    failure_ = {fault, rank, step, action, needed};
    return false;
  }

  template <class Watch> constexpr void advance(int rank, const Watch& watch) {
    Rank& me = ranks_.items[rank];
    me.queued = false;
    while (me.part != Part::beginning || fetch(rank, me)) {
      Planned& planned = planned_.items[rank * kept_ + me.current % kept_];
      if (me.part == Part::receiving && (me.current == me.fetched || !compute(rank, me, planned, watch)))
        return;
      if (me.part == Part::sending && !send(rank, me, planned, planned.step.first, 0))
        return;
      if (me.part == Part::sending_second && !send(rank, me, planned, planned.step.second, 1))
        return;
      ++me.current;
    }
  }

  /// Reads the steps up to the end of the window, and starts their receives.
  constexpr bool fetch(int rank, Rank& me) {
    me.part = Part::receiving;
    for (; me.fetched < me.current + kept_ && !me.ended; ++me.fetched) {
      Planned& planned = planned_.items[rank * kept_ + me.fetched % kept_];
      if (!me.cursor.next(planned.step))
        return me.ended = true;
      if (!receive(rank, me, planned, planned.step.first, 0) ||
          (planned.step.overlapped && !receive(rank, me, planned, planned.step.second, 1)))
        return false;
    }
    return true;
  }

  constexpr bool receive(int rank, const Rank& me, Planned& planned, const Action& action, int i) {
    const StagePlace* at = planned.at[i] = stages_.find(action);
    if (at == nullptr || at->rank != rank)
      return fail(at == nullptr ? ScheduleFault::unknown : ScheduleFault::misplaced, rank, me.fetched, action,
                  action);
    const int stages_on = from[static_cast<int>(action.pass)];
    const int other = at[stages_on].rank;
    planned.index[i] = stages_.index(action.stage, action.microbatch);
    if (other < 0 || other == rank)
      return true;
    const int gradient = stages_on > 0 ? 1 : 0;
    Message& in = planned.in[i];
    in = {2 * (planned.index[i] + stages_on * stages_.microbatches()) + gradient, me.now, -1};
    Message* out = sends_.items + (4 * other + 2 * gradient + at->runs_back) * slots_;
    const bool table = slots_ > searched_slots;
    for (int slot = table ? slot_of_.items[in.key] : 0, end = table ? slot + 1 : slots_; slot < end; ++slot)
      if (out[slot].key == in.key && out[slot].ended < 0)
        meet(out[slot], in, other, true);
    return true;
  }

  /// Runs the passes of a step; false while it has to wait, or if it is in a wrong position.
  template <class Watch>
  constexpr bool compute(int rank, Rank& me, const Planned& planned, const Watch& watch) {
    if (planned.in[0].ended < 0 || planned.in[1].ended < 0 ||
        !pass(rank, me, planned, planned.step.first, 0) ||
        (planned.step.overlapped && !pass(rank, me, planned, planned.step.second, 1)))
      return false;
    const double ready =
        planned.in[0].ended < planned.in[1].ended ? planned.in[1].ended : planned.in[0].ended;
    const double start = me.now < ready ? ready : me.now;
    const double cost = costs_.of(planned.step);
    me.now = start + cost;
    me.proof.begin = me.current == 0 ? start : me.proof.begin;
    me.proof.busy += cost;
    me.proof.end = me.now;
    me.part = Part::sending;
    watch(rank, planned.step, start, me.now);
    return true;
  }

  /// Marks a pass as run, and updates the kept microbatches. Its inputs from other ranks have already
  /// arrived.
  constexpr bool pass(int rank, Rank& me, const Planned& planned, const Action& action, int i) {
    const int kind = static_cast<int>(action.pass);
    std::uint8_t* passed = passed_.items + planned.index[i];
    if ((*passed & (does[kind] | needs[kind])) != needs[kind] ||
        (planned.at[i][from[kind]].rank == rank &&
         (passed[from[kind] * stages_.microbatches()] & needs_from[kind]) != needs_from[kind]))
      return refuse(rank, me.current, action, *passed);
    *passed = static_cast<std::uint8_t>(*passed | does[kind]);
    left_ -= kind == 1 ? 2 : 1;
    me.kept += keeps[kind];
    me.kept_until_input_gradient += keeps_until_input_gradient[kind];
    me.proof.peak_in_flight = me.kept > me.proof.peak_in_flight ? me.kept : me.proof.peak_in_flight;
    if (me.kept_until_input_gradient > me.proof.peak_until_input_gradient)
      me.proof.peak_until_input_gradient = me.kept_until_input_gradient;
    return true;
  }

  constexpr bool refuse(int rank, int step, const Action& action, int passed) {
    const int kind = static_cast<int>(action.pass);
    if ((passed & does[kind]) != 0)
      return fail(ScheduleFault::repeated, rank, step, action, action);
    if ((passed & needs[kind]) != needs[kind])
      return fail(ScheduleFault::out_of_order, rank, step, action,
                  {kind == 3 ? Pass::input_gradient : Pass::forward, action.stage, action.microbatch});
    return fail(ScheduleFault::out_of_order, rank, step, action,
                {action.pass, action.stage + from[kind], action.microbatch});
  }

  /// Starts the send of an action's result, if it is sent; false while its slot is not free.
  constexpr bool send(int rank, Rank& me, const Planned& planned, const Action& action, int i) {
    const int stages_on = -from[static_cast<int>(action.pass)];
    const int other = planned.at[i][stages_on].rank;
    if (other < 0 || other == rank) {
      me.part = i == 0 && planned.step.overlapped ? Part::sending_second : Part::beginning;
      return true;
    }
    const int gradient = stages_on > 0 ? 0 : 1;
    const int number = 2 * gradient + planned.at[i]->runs_back;
    const int slot = me.sent[number] % slots_;
    Message& out = sends_.items[(4 * rank + number) * slots_ + slot];
    full_ = full_ || out.ended < 0 || me.now < out.ended;
    if (out.ended < 0)
      return false;
    me.part = i == 0 && planned.step.overlapped ? Part::sending_second : Part::beginning;
    ++me.sent[number];
    me.now = me.now < out.ended ? out.ended : me.now;
    out = {2 * planned.index[i] + gradient, me.now, -1};
    if (slots_ > searched_slots)
      slot_of_.items[out.key] = slot;
    Planned* theirs = planned_.items + other * kept_;
    for (int k = 0; k < 2 * kept_; ++k)
      if (theirs[k / 2].in[k % 2].key == out.key && theirs[k / 2].in[k % 2].ended < 0)
        return meet(out, theirs[k / 2].in[k % 2], other, k / 2 == ranks_.items[other].current % kept_);
    return true;
  }

  /// The other side is ready: the message completes, and its owner may continue.
  constexpr bool meet(Message& out, Message& in, int other, bool awaited) {
    in.ended = out.ended = (in.ready < out.ready ? out.ready : in.ready) + costs_.send;
    if (awaited)
      wake(other);
    return true;
  }

  StagePlacement placement_;
  StageTable stages_;
  Costs costs_;
  int kept_;  // steps that are read and not yet done: the current one and those received ahead
  int slots_; // of every channel
  FixedArray<std::uint8_t> passed_;
  FixedArray<Rank> ranks_;
  FixedArray<Planned> planned_;
  FixedArray<Message> sends_; // slots_ per channel, four channels per rank
  FixedArray<int> slot_of_;   // of each message, if there are too many slots to search
  FixedArray<int> runnable_;
  int runnable_count_ = 0;
  bool full_ = false;
  std::int64_t left_;
  ScheduleFailure failure_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
