// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/message_turns.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

using namespace shardwright;

namespace {

/// Ranks whose messages match in order: each rank's device carries groups of messages one after the other,
/// and a group ends when all its messages have met their other sides. The host issues the groups, and never
/// waits for the device.
class OrderedRanks {
public:
  OrderedRanks(const Schedule& schedule, bool by_turns, int lowest = 0)
      : schedule_(schedule), by_turns_(by_turns), lowest_(lowest) {
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      ranks_.push_back({rank, MessageTurns(schedule, rank, lowest)});
  }

  /// Whether all ranks end.
  [[nodiscard]] bool end() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_)
        moved = host(rank) || device(rank) || moved;
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return rank.stream.empty() && rank.computed == schedule_.steps(rank.number).size();
    });
  }

private:
  struct Group {
    std::vector<StageMessage> messages;
    std::size_t after; ///< Steps on the rank's stream when it was issued.
    std::vector<StageMessage> done{};
  };
  struct Rank {
    int number;
    MessageTurns turns;
    std::vector<StageMessage> waiting{}, issued{}, arrived{};
    std::map<std::tuple<int, bool>, std::vector<StageMessage>> sent{}; ///< By receiver and kind.
    std::deque<Group> stream{};
    int turn = 0;
    std::size_t step = 0, posted = 0, computed = 0;
    int delivered = 0; ///< Outputs of the step.
  };

  [[nodiscard]] bool is_sent(const StageMessage& message) const {
    return message.is_sent() && message.reaches(lowest_);
  }
  static bool has(const std::vector<StageMessage>& all, const StageMessage& one) {
    return std::count(all.begin(), all.end(), one) > 0;
  }

  void offer(Rank& rank, const StageMessage& message, std::size_t steps) {
    rank.waiting.push_back(message);
    const auto issue = [&](const std::vector<StageMessage>& group) {
      rank.stream.push_back({group, steps});
      rank.issued.insert(rank.issued.end(), group.begin(), group.end());
    };
    if (!by_turns_)
      return issue(std::exchange(rank.waiting, {}));
    const std::vector<int>& sizes = rank.turns.sizes();
    for (; static_cast<std::size_t>(rank.turn) < sizes.size(); ++rank.turn) {
      std::vector<StageMessage> due, later;
      for (const StageMessage& each : rank.waiting)
        (rank.turns.turn_of(each) == rank.turn ? due : later).push_back(each);
      if (static_cast<int>(due.size()) < sizes[static_cast<std::size_t>(rank.turn)])
        return;
      std::sort(due.begin(), due.end(), [&](const StageMessage& one, const StageMessage& other) {
        return rank.turns.place_of(one) < rank.turns.place_of(other);
      });
      issue(due);
      rank.waiting = later;
    }
  }

  /// One step of the runner, as far as it comes.
  bool host(Rank& rank) {
    const auto steps = schedule_.steps(rank.number);
    const auto ahead = static_cast<std::size_t>(schedule_.window().receive_ahead);
    for (; rank.posted < steps.size() && rank.posted <= rank.step + ahead; ++rank.posted)
      for (int i = 0; i < steps[rank.posted].size(); ++i)
        if (const auto in = input_of(schedule_.placement(), steps[rank.posted][i]); in && is_sent(*in))
          offer(rank, *in, rank.step);
    if (rank.step == steps.size())
      return false;
    const Step& step = steps[rank.step];
    for (int i = 0; i < step.size(); ++i)
      if (const auto in = input_of(schedule_.placement(), step[i]);
          in && is_sent(*in) && !has(rank.issued, *in))
        return false;
    for (; rank.delivered < step.size(); ++rank.delivered) {
      const auto out = output_of(schedule_.placement(), step[rank.delivered]);
      if (!out || !is_sent(*out))
        continue;
      auto& sent = rank.sent[{out->to_rank, out->gradient}];
      const auto most = static_cast<std::size_t>(schedule_.window().sends_in_flight);
      if (sent.size() >= most && !has(rank.issued, sent[sent.size() - most]))
        return false;
      sent.push_back(*out);
      offer(rank, *out, rank.step + 1);
    }
    rank.delivered = 0;
    ++rank.step;
    return true;
  }

  /// The group that a rank carries at this moment, or null.
  static Group* running(Rank& rank) {
    return rank.stream.empty() || rank.stream.front().after > rank.computed ? nullptr : &rank.stream.front();
  }

  /// The first message between the ends of `like` that a group has not carried: the one that can match.
  static const StageMessage* next(const Group& group, const StageMessage& like) {
    for (const StageMessage& each : group.messages)
      if (each.from_rank == like.from_rank && each.to_rank == like.to_rank && !has(group.done, each))
        return &each;
    return nullptr;
  }

  bool device(Rank& rank) {
    bool moved = false;
    if (rank.computed < rank.step) {
      const Step& step = schedule_.steps(rank.number)[rank.computed];
      bool all = true;
      for (int i = 0; i < step.size(); ++i)
        if (const auto in = input_of(schedule_.placement(), step[i]); in && is_sent(*in))
          all = all && has(rank.arrived, *in);
      rank.computed += all ? 1 : 0;
      moved = all;
    }
    Group* const own = running(rank);
    if (own == nullptr)
      return moved;
    for (const StageMessage& message : own->messages) {
      Rank& peer = ranks_[static_cast<std::size_t>(message.from_rank == rank.number ? message.to_rank
                                                                                    : message.from_rank)];
      Group* const other = running(peer);
      if (has(own->done, message) || other == nullptr || *next(*own, message) != message)
        continue;
      const StageMessage* const met = next(*other, message);
      if (met == nullptr || *met != message)
        continue;
      own->done.push_back(message);
      other->done.push_back(message);
      ranks_[static_cast<std::size_t>(message.to_rank)].arrived.push_back(message);
      moved = true;
    }
    for (Rank& each : ranks_)
      while (!each.stream.empty() && each.stream.front().done.size() == each.stream.front().messages.size())
        each.stream.pop_front();
    return moved;
  }

  const Schedule& schedule_;
  bool by_turns_;
  int lowest_;
  std::vector<Rank> ranks_;
};

} // namespace

TEST_CASE("activations go forward and gradients come back", "[message]") {
  constexpr StagePlacement placement = StagePlacement::v_shape(2);
  STATIC_REQUIRE(output_of(placement, {Pass::forward, 0, 5}) == StageMessage{false, 0, 5, 0, 1});
  STATIC_REQUIRE(input_of(placement, {Pass::input_gradient, 0, 5}) == StageMessage{true, 1, 5, 1, 0});
  STATIC_REQUIRE(output_of(placement, {Pass::backward, 3, 5})->to_stage() == 2);
  STATIC_REQUIRE(!output_of(placement, {Pass::forward, 1, 5})->is_sent());
  STATIC_REQUIRE(!input_of(placement, {Pass::forward, 0, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::forward, 3, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::input_gradient, 0, 5}));
  STATIC_REQUIRE(!input_of(placement, {Pass::backward, 3, 5}));
  STATIC_REQUIRE(!output_of(placement, {Pass::weight_gradient, 1, 5}));
  STATIC_REQUIRE(!input_of(placement, {Pass::weight_gradient, 1, 5}));
}

TEST_CASE("proven schedules end over messages that match in order, in turns", "[message]") {
  std::vector<Schedule> schedules;
  for (const int microbatches : {1, 4, 8})
    for (const int ranks : {2, 4}) {
      schedules.push_back(make_schedule<GPipe>(ranks, microbatches));
      schedules.push_back(make_schedule<OneFOneB>(ranks, microbatches));
      schedules.push_back(make_schedule<ZBH1>(ranks, microbatches));
      schedules.push_back(make_schedule<ZBH2>(ranks, microbatches));
      schedules.push_back(make_schedule<ZBV>(ranks, microbatches));
      if (microbatches % ranks == 0) {
        schedules.push_back(make_schedule<Interleaved<2>>(ranks, microbatches));
        schedules.push_back(make_schedule<InterleavedZB<2>>(ranks, microbatches));
      }
    }
  schedules.push_back(make_schedule<ZBV>(3, 7));
  schedules.push_back(make_schedule<DualPipe>(4, 10));
  schedules.push_back(make_schedule<DualPipeV>(4, 10));
  // In this window the ends of two messages of one turn get them ready in different orders.
  const Schedule dual = make_schedule<DualPipe>(6, 12);
  std::vector<std::vector<Step>> of_dual;
  for (int rank = 0; rank < dual.ranks(); ++rank)
    of_dual.emplace_back(dual.steps(rank).begin(), dual.steps(rank).end());
  schedules.push_back({dual.name(), dual.placement(), dual.microbatches(), of_dual, {.receive_ahead = 3}});
  for (const Schedule& trained : std::vector<Schedule>(schedules)) { // as in an evaluation
    std::vector<std::vector<Step>> steps(static_cast<std::size_t>(trained.ranks()));
    for (int microbatch = 0; microbatch < trained.microbatches(); ++microbatch)
      for (int stage = 0; stage < trained.stages(); ++stage)
        steps[static_cast<std::size_t>(trained.placement().rank_of(stage, microbatch))].push_back(
            {{Pass::forward, stage, microbatch}, {}, false});
    schedules.push_back({"forwards of " + trained.name(), trained.placement(), trained.microbatches(), steps,
                         trained.window()});
  }
  for (const Schedule& schedule : schedules) {
    INFO(schedule.name() << " on " << schedule.ranks() << " ranks, " << schedule.microbatches()
                         << " microbatches");
    CHECK(OrderedRanks(schedule, true).end());
    for (const int lowest : {1, 2, schedule.stages()}) // nothing is trained before that stage
      CHECK(OrderedRanks(schedule, true, lowest).end());
  }
}

// docs/explanation/communication.md gives this as the reason for the turns.
TEST_CASE("in the order in which they are ready, messages that match in order block 1F1B", "[message]") {
  CHECK_FALSE(OrderedRanks(make_schedule<OneFOneB>(2, 4), false).end());
}

TEST_CASE("both ends of a message agree on its moment", "[message]") {
  const Schedule schedule = make_schedule<ZBV>(3, 6);
  int messages = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const MessageTurns turns(schedule, rank);
    for (const int size : turns.sizes())
      messages += size;
  }
  CHECK(messages ==
        2 * 2 * 4 * 6); // at both ends, back and forth, between the 4 pairs of stages on two ranks
}

TEST_CASE("every output of a schedule is the input of one action on the rank that it names", "[message]") {
  for (const Schedule& schedule :
       std::vector<Schedule>{make_schedule<Interleaved<3>>(4, 8), make_schedule<InterleavedZB<2>>(3, 8),
                             make_schedule<ZBV>(3, 7), make_schedule<DualPipe>(4, 10)}) {
    std::map<std::tuple<bool, int, int>, std::vector<StageMessage>> made;
    std::map<std::tuple<bool, int, int>, std::vector<StageMessage>> taken;
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (const Step& step : schedule.steps(rank))
        for (int i = 0; i < step.size(); ++i) {
          if (const auto out = output_of(schedule.placement(), step[i])) {
            REQUIRE(out->from_rank == rank);
            REQUIRE(action_of(*out).stage == step[i].stage);
            made[{out->gradient, out->stage, out->microbatch}].push_back(*out);
          }
          if (const auto in = input_of(schedule.placement(), step[i])) {
            REQUIRE(in->to_rank == rank);
            REQUIRE(in->to_stage() == step[i].stage);
            taken[{in->gradient, in->stage, in->microbatch}].push_back(*in);
          }
        }
    REQUIRE(made == taken);
    REQUIRE(static_cast<int>(made.size()) == 2 * (schedule.stages() - 1) * schedule.microbatches());
    for (const auto& [key, messages] : made)
      REQUIRE(messages.size() == 1);
  }
}
