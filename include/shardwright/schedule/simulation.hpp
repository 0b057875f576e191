// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a schedule through with the messages of a pipeline runner, without running anything.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/proof.hpp>
#include <shardwright/schedule/stage_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What a rank that cannot go on waits for.
struct RankWait {
  int step = -1;        ///< Place in its order; -1 where it waits for nothing.
  Action action{};      ///< What it is to do there, or has just done where it sends.
  int on = -1;          ///< Rank that it waits for.
  Action message{};     ///< The pass (forward or input gradient) that makes the message, and of which stage.
  bool sending = false; ///< Whether it waits for that rank to take the message, not to make it.
};

/// @brief Goes through the orders of all ranks as a runner with the same MessageWindow would.
///
/// `Source` has placement(), microbatches() and cursor(rank), whose `bool next(Step&)` gives the steps in
/// turn. Every rank runs until it must wait. Times follow from maxima and sums alone, so they do not depend
/// on which rank is taken first. Memory: a few hundred bytes per rank, and one byte per stage and microbatch.
/// Time: constant per action; and few statements, because compilers count them against a limit.
template <class Source>
class Simulation {
public:
  constexpr Simulation(const Source& source, const PassCosts& costs, const MessageWindow& window)
      : stages_(source.placement(), source.microbatches()), costs_(costs),
        kept_(std::max(window.receive_ahead, 0) + 1), slots_(std::max(window.sends_in_flight, 1)),
        passed_(stages_.index(stages_.stages(), 0)),
        ranks_(static_cast<std::size_t>(source.placement().ranks)),
        steps_(ranks_.size() * static_cast<std::size_t>(kept_)), receives_(2 * steps_.size()),
        sends_(ranks_.size() * static_cast<std::size_t>(4 * slots_)), runnable_(ranks_.size()),
        left_(3 * static_cast<std::int64_t>(passed_.size())) {
    for (int rank = static_cast<int>(ranks_.size()); rank-- > 0; wake(rank))
      ranks_[static_cast<std::size_t>(rank)].cursor = source.cursor(rank);
  }

  /// @brief Runs until every rank has ended or none can go on; calls `watch(rank, step, start, end)`.
  template <class Watch>
  constexpr void run(const Watch& watch) {
    while (runnable_count_ > 0 && failure_.fault == ScheduleFault::none)
      advance(runnable_.data()[--runnable_count_], watch);
  }

  /// @brief Passes of all microbatches through all stages that were not run, a B counted as two.
  [[nodiscard]] constexpr std::int64_t left() const noexcept { return left_; }
  /// @brief The first action that stands at a wrong place.
  [[nodiscard]] constexpr const ScheduleFailure& failure() const noexcept { return failure_; }
  [[nodiscard]] constexpr const RankProof& proof_of(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].proof;
  }

  /// @brief What a rank waits for once `run` has returned.
  [[nodiscard]] constexpr RankWait wait_of(int rank) const {
    const Rank& me = ranks_[static_cast<std::size_t>(rank)];
    const Step& step = steps_[place_of(rank, me.current)];
    if (me.part == Part::receiving && me.current < me.fetched)
      for (int i = 0; i < 2; ++i)
        if (const Message& in = receives_[2 * place_of(rank, me.current) + static_cast<std::size_t>(i)];
            in.key >= 0 && in.ended < 0) {
          const Action message = message_of(in.key);
          return {me.current, step[i], stages_.at(message.stage, message.microbatch)->rank, message, false};
        }
    for (std::size_t i = 0; i < static_cast<std::size_t>(4 * slots_); ++i)
      if (const Message& out = sends_[static_cast<std::size_t>(4 * slots_ * rank) + i];
          out.key >= 0 && out.ended < 0) {
        const Action message = message_of(out.key);
        const StagePlace* at = stages_.at(message.stage, message.microbatch);
        return {me.current, message, at[message.pass == Pass::forward ? 1 : -1].rank, message, true};
      }
    return {};
  }

private:
  using Cursor = decltype(std::declval<const Source&>().cursor(0));

  /// A send or a receive: what it carries, when its end of the line was ready, and when it ended.
  struct Message {
    std::int64_t key = -1; ///< Stage and microbatch that make it, twice, plus 1 for a gradient; -1: none.
    double ready = 0;
    double ended = 0; ///< Negative while it has not.
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
    double now = 0;     ///< When it ended its last pass and could start the sends of it.
    int kept = 0;       ///< Microbatches whose W is still to come.
    int kept_until_input_gradient = 0;
    int sent[4] = {}; ///< Per channel: activations and gradients, to a higher rank and to a lower one.
  };

  [[nodiscard]] constexpr std::size_t place_of(int rank, int step) const noexcept {
    return static_cast<std::size_t>(rank * kept_ + step % kept_);
  }
  [[nodiscard]] constexpr std::int64_t key_of(int stage, int microbatch, int gradient) const noexcept {
    return 2 * static_cast<std::int64_t>(stages_.index(stage, microbatch)) + gradient;
  }
  [[nodiscard]] constexpr Action message_of(std::int64_t key) const noexcept {
    return {key % 2 == 0 ? Pass::forward : Pass::input_gradient,
            static_cast<int>(key / 2 / stages_.microbatches()),
            static_cast<int>(key / 2 % stages_.microbatches())};
  }
  [[nodiscard]] constexpr Message* channel(int rank, int number) noexcept {
    return sends_.data() + (rank * 4 + number) * slots_;
  }
  constexpr void wake(int rank) {
    if (ranks_.data()[rank].queued)
      return;
    ranks_.data()[rank].queued = true;
    runnable_.data()[runnable_count_++] = rank;
  }
  constexpr bool fail(ScheduleFault fault, int rank, int step, const Action& action, const Action& needed) {
    failure_ = {fault, rank, step, action, needed};
    return false;
  }

  template <class Watch>
  constexpr void advance(int rank, const Watch& watch) {
    Rank& me = ranks_.data()[rank];
    me.queued = false;
    while (me.part != Part::beginning || fetch(rank, me)) {
      const Step& step = steps_.data()[place_of(rank, me.current)];
      if (me.part == Part::receiving && (me.current == me.fetched || !compute(rank, me, step, watch)))
        return;
      if (me.part == Part::sending && !send(rank, me, step.first, step.overlapped))
        return;
      if (me.part == Part::sending_second && !send(rank, me, step.second, false))
        return;
      ++me.current;
    }
  }

  /// Reads the steps up to the end of the window, and starts their receives.
  constexpr bool fetch(int rank, Rank& me) {
    for (; me.fetched < me.current + kept_ && !me.ended; ++me.fetched) {
      const std::size_t place = place_of(rank, me.fetched);
      Step& step = steps_.data()[place];
      me.ended = !me.cursor.next(step);
      if (me.ended)
        break;
      Message* in = receives_.data() + 2 * place;
      in[1].key = -1;
      if (!receive(rank, me, step.first, in[0]) ||
          (step.overlapped && !receive(rank, me, step.second, in[1])))
        return false;
    }
    me.part = Part::receiving;
    return true;
  }

  constexpr bool receive(int rank, const Rank& me, const Action& action, Message& in) {
    if (!stages_.knows(action))
      return fail(ScheduleFault::unknown, rank, me.fetched, action, action);
    const StagePlace* at = stages_.at(action.stage, action.microbatch);
    if (at->rank != rank)
      return fail(ScheduleFault::misplaced, rank, me.fetched, action, action);
    const int gradient = action.pass == Pass::forward ? 0 : 1;
    const int from = gradient * 2 - 1;
    in.key = -1;
    if (action.pass == Pass::weight_gradient || at[from].rank < 0 || at[from].rank == rank)
      return true;
    in = {key_of(action.stage + from, action.microbatch, gradient), me.now, -1};
    Message* out = channel(at[from].rank, 2 * gradient + at->runs_back);
    for (int i = 0; i < slots_; ++i)
      if (out[i].key == in.key && out[i].ended < 0)
        meet(out[i], in, at[from].rank, true);
    return true;
  }

  /// Goes through the passes of a step; false while it has to wait, or where it stands at a wrong place.
  template <class Watch>
  constexpr bool compute(int rank, Rank& me, const Step& step, const Watch& watch) {
    const Message* in = receives_.data() + 2 * place_of(rank, me.current);
    if (in[0].ended < 0 || in[1].ended < 0)
      return false;
    if (!pass(rank, me, step.first) || (step.overlapped && !pass(rank, me, step.second)))
      return false;
    const double ready = in[0].ended < in[1].ended ? in[1].ended : in[0].ended;
    const double start = me.now < ready ? ready : me.now;
    const double cost = costs_.of(step);
    RankProof& proof = me.proof;
    proof = {proof.peak_in_flight, proof.peak_until_input_gradient, proof.busy + cost,
             me.current == 0 ? start : proof.begin, start + cost};
    me.now = start + cost;
    me.part = Part::sending;
    watch(rank, step, start, me.now);
    return true;
  }

  /// Marks a pass as run, and counts what is kept. What comes from other ranks is there already.
  constexpr bool pass(int rank, Rank& me, const Action& action) {
    constexpr int forward_bit = 1;
    constexpr int input_bit = 2;
    constexpr int marks[] = {1, 6, 2, 4}; // of F, B, I, W: F is bit 1, I bit 2, W bit 4
    constexpr int needs[] = {0, 1, 1, 2};
    const int kind = static_cast<int>(action.pass);
    const int neighbour = kind == 0 ? -1 : 1;
    std::uint8_t* passed = passed_.data() + stages_.index(action.stage, action.microbatch);
    if ((*passed & marks[kind]) != 0)
      return fail(ScheduleFault::repeated, rank, me.current, action, action);
    if ((*passed & needs[kind]) != needs[kind])
      return fail(ScheduleFault::out_of_order, rank, me.current, action,
                  {kind == 3 ? Pass::input_gradient : Pass::forward, action.stage, action.microbatch});
    if (kind != 3 && stages_.at(action.stage, action.microbatch)[neighbour].rank == rank &&
        (passed[neighbour * stages_.microbatches()] & (kind == 0 ? forward_bit : input_bit)) == 0)
      return fail(ScheduleFault::out_of_order, rank, me.current, action,
                  {kind == 0 ? Pass::forward : action.pass, action.stage + neighbour, action.microbatch});
    *passed = static_cast<std::uint8_t>(*passed | marks[kind]);
    left_ -= kind == 1 ? 2 : 1;
    me.kept += kind == 0 ? 1 : kind == 2 ? 0 : -1;
    me.kept_until_input_gradient += kind == 0 ? 1 : kind == 3 ? 0 : -1;
    if (me.kept > me.proof.peak_in_flight)
      me.proof.peak_in_flight = me.kept;
    if (me.kept_until_input_gradient > me.proof.peak_until_input_gradient)
      me.proof.peak_until_input_gradient = me.kept_until_input_gradient;
    return true;
  }

  /// Starts the send of what an action made, if there is one; false while its slot is not free.
  constexpr bool send(int rank, Rank& me, const Action& action, bool more) {
    const StagePlace* at = stages_.at(action.stage, action.microbatch);
    const int gradient = action.pass == Pass::forward ? 0 : 1;
    const int other = at[1 - 2 * gradient].rank;
    const int number = 2 * gradient + at->runs_back;
    const bool remote = action.pass != Pass::weight_gradient && other >= 0 && other != rank;
    Message& out = channel(rank, number)[me.sent[number] % slots_];
    if (remote && out.ended < 0)
      return false;
    me.part = more ? Part::sending_second : Part::beginning;
    if (!remote)
      return true;
    ++me.sent[number];
    me.now = me.now < out.ended ? out.ended : me.now;
    out = {key_of(action.stage, action.microbatch, gradient), me.now, -1};
    Message* in = receives_.data() + 2 * kept_ * other;
    for (int i = 0; i < 2 * kept_; ++i)
      if (in[i].key == out.key && in[i].ended < 0)
        meet(out, in[i], other, i / 2 == ranks_.data()[other].current % kept_);
    return true;
  }

  /// The other end of the line is there: the message ends, and its owner may go on.
  constexpr void meet(Message& out, Message& in, int other, bool awaited) {
    in.ended = out.ended = (in.ready < out.ready ? out.ready : in.ready) + costs_.send;
    if (awaited)
      wake(other);
  }

  StageTable stages_;
  PassCosts costs_;
  int kept_;  // steps that are read and not yet done: the current one and those received ahead
  int slots_; // of every channel
  std::vector<std::uint8_t> passed_;
  std::vector<Rank> ranks_;
  std::vector<Step> steps_;
  std::vector<Message> receives_; // two per step
  std::vector<Message> sends_;    // slots_ per channel, four channels per rank
  std::vector<int> runnable_;
  int runnable_count_ = 0;
  std::int64_t left_;
  ScheduleFailure failure_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
