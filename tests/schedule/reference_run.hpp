// SPDX-License-Identifier: Apache-2.0
#pragma once

// Executes a schedule with the message rules of MessageWindow, implemented as plainly as they are stated: all
// ranks in turn, all messages in maps. The library's simulation is compared with it.

#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace schedule_test {

using namespace shardwright;

class ReferenceRun {
public:
  ReferenceRun(const Schedule& schedule, const PassCosts& costs, const MessageWindow& window)
      : schedule_(schedule), costs_(costs), window_(window),
        ranks_(static_cast<std::size_t>(schedule.ranks())) {
    for (bool moved = true; moved && ordered;) {
      moved = false;
      for (int rank = 0; rank < schedule.ranks(); ++rank)
        while (ordered && move(rank))
          moved = true;
    }
    ended = ordered;
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      ended = ended &&
              ranks_[static_cast<std::size_t>(rank)].step == static_cast<int>(schedule.steps(rank).size());
    for (const auto& [message, start] : sends_)
      ended = ended && receives_.count(message) == 1;
    for (const Rank& rank : ranks_)
      makespan = std::max(makespan, rank.end);
  }

  bool ordered = true; ///< Whether every action comes after those of its own rank that it needs.
  bool ended = false;  ///< Whether every rank reached its end, and every send was received.
  double makespan = 0;

private:
  using Message = std::tuple<bool, int, int>; // gradient?, stage that makes it, microbatch
  struct Rank {
    int step = 0;
    int sent = 0;      // outputs of the step that are in flight
    bool done = false; // the passes of the step
    double now = 0;
    double end = 0;
  };

  [[nodiscard]] int rank_of(int stage, int microbatch) const {
    return stage < 0 || stage >= schedule_.stages() ? -1 : schedule_.placement().rank_of(stage, microbatch);
  }
  [[nodiscard]] std::optional<Message> input(int rank, const Action& action) const {
    const bool gradient = action.pass != Pass::forward;
    const int stage = action.stage + (gradient ? 1 : -1);
    const int other = rank_of(stage, action.microbatch);
    if (action.pass == Pass::weight_gradient || other < 0 || other == rank)
      return {};
    return Message{gradient, stage, action.microbatch};
  }
  [[nodiscard]] std::optional<std::pair<int, Message>> output(int rank, const Action& action) const {
    const bool gradient = action.pass != Pass::forward;
    const int other = rank_of(action.stage + (gradient ? -1 : 1), action.microbatch);
    if (action.pass == Pass::weight_gradient || other < 0 || other == rank)
      return {};
    return std::pair{other, Message{gradient, action.stage, action.microbatch}};
  }
  [[nodiscard]] std::optional<double> arrival(const Message& message) const {
    const auto send = sends_.find(message);
    const auto receive = receives_.find(message);
    if (send == sends_.end() || receive == receives_.end())
      return {};
    return std::max(send->second, receive->second) + costs_.send;
  }
  [[nodiscard]] bool ready(const Action& action) const {
    const auto has = [&](Pass pass, int stage) {
      return passed_.count({pass, stage, action.microbatch}) == 1;
    };
    const bool last = action.stage == schedule_.stages() - 1;
    const auto gradient_of = [&](int stage) {
      return has(Pass::input_gradient, stage) || has(Pass::backward, stage);
    };
    switch (action.pass) {
    case Pass::forward:
      return action.stage == 0 || has(Pass::forward, action.stage - 1);
    case Pass::weight_gradient:
      return has(Pass::input_gradient, action.stage);
    default:
      return has(Pass::forward, action.stage) && (last || gradient_of(action.stage + 1));
    }
  }

  bool move(int rank) {
    Rank& me = ranks_[static_cast<std::size_t>(rank)];
    const auto steps = schedule_.steps(rank);
    if (me.step == static_cast<int>(steps.size()))
      return false;
    const Step& step = steps[static_cast<std::size_t>(me.step)];
    if (!me.done) {
      for (int ahead = 0; ahead <= window_.receive_ahead; ++ahead)
        if (me.step + ahead < static_cast<int>(steps.size()))
          for (int i = 0; i < steps[static_cast<std::size_t>(me.step + ahead)].size(); ++i)
            if (const auto message = input(rank, steps[static_cast<std::size_t>(me.step + ahead)][i]))
              receives_.insert({*message, me.now});
      double start = me.now;
      for (int i = 0; i < step.size(); ++i)
        if (const auto message = input(rank, step[i])) {
          const auto arrived = arrival(*message);
          if (!arrived)
            return false;
          start = std::max(start, *arrived);
        }
      for (int i = 0; i < step.size(); ++i) {
        ordered = ordered && ready(step[i]);
        passed_.insert({step[i].pass, step[i].stage, step[i].microbatch});
      }
      me.now = me.end = start + costs_.of(step);
      me.done = true;
      return true;
    }
    for (; me.sent < step.size(); ++me.sent)
      if (const auto out = output(rank, step[me.sent])) {
        auto& channel = channels_[{rank, out->first, std::get<bool>(out->second)}];
        const auto slots = static_cast<std::size_t>(window_.sends_in_flight);
        if (channel.size() >= slots) {
          const auto freed = arrival(channel[channel.size() - slots]);
          if (!freed)
            return false;
          me.now = std::max(me.now, *freed);
        }
        channel.push_back(out->second);
        sends_[out->second] = me.now;
      }
    ++me.step;
    me.sent = 0;
    me.done = false;
    return true;
  }

  const Schedule& schedule_;
  PassCosts costs_;
  MessageWindow window_;
  std::vector<Rank> ranks_;
  std::map<Message, double> sends_;
  std::map<Message, double> receives_;
  std::map<std::tuple<int, int, bool>, std::vector<Message>> channels_;
  std::set<std::tuple<Pass, int, int>> passed_;
};

} // namespace schedule_test
