// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages between the stages of a pipeline, as the proof of a schedule assumes them.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/schedule/message_turns.hpp>
#include <shardwright/train/pipeline/plan.hpp>
#include <shardwright/train/pipeline/timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The messages of one rank. Receives are started ahead of time by calling `post`; each channel (a rank in a
/// direction) has a limited number of sends in flight, and the next one waits for the oldest. Where messages
/// match by order, they are issued in the turns of the schedule.
template <class Boundary> class PipelineMessages {
  using Element = typename Boundary::value_type;
  using Kind = PipelineMessage::Kind;
  using Target = typename Boundary::target;

public:
  PipelineMessages(const PipelinePlan& plan, int sends_in_flight, TimelineRecorder& recorder)
      : inputs_(plan.slots), channels_(plan.channels), recorder_(recorder) {
    for (Channel& channel : channels_)
      channel.sends.resize(static_cast<std::size_t>(std::max(sends_in_flight, 1)));
  }

  /// Sets the ranks of the pipeline, whose calls can access the memory of the messages.
  void connect(CommunicatorOf<Target> ranks) { ranks_ = std::move(ranks); }
  [[nodiscard]] bool connected() const noexcept { return ranks_.valid(); }
  /// Whether the ranks' messages match by order, so that every run needs `take_turns`.
  [[nodiscard]] bool takes_turns() const { return ranks_.valid() && ranks_.matches_in_order(); }
  /// Sets the order of the next run's messages.
  void take_turns(const MessageTurns& turns) noexcept {
    turns_ = &turns;
    turn_ = 0;
  }

  /// Sets the source line of the messages.
  void called_from(SourceLocation where) noexcept { where_ = where; }

  /// Starts the receive of an action's input into `memory()`, if it comes from another rank.
  template <class Memory> void post(const PlannedAction& planned, Memory memory) {
    if (planned.input.kind != Kind::remote)
      return;
    Input& input = inputs_[planned.input.slot];
    const MemoryFor purpose(MemoryKind::messages);
    input.tensor.emplace(memory());
    order_call_after<Target>(input.tensor->execution());
    issue({&planned.input, nullptr});
  }

  /// Waits for the input of an action; nothing if it has none.
  [[nodiscard]] std::optional<Boundary> take(const PlannedAction& planned) {
    if (planned.input.kind == Kind::none)
      return std::nullopt;
    Input& input = inputs_[planned.input.slot];
    if (planned.input.kind == Kind::remote)
      wait(input.receive, PipelineWork::wait_input, planned.action);
    return std::exchange(input.tensor, std::nullopt);
  }

  /// Passes an action's result to where it is needed.
  void deliver(const PlannedAction& planned, std::optional<Boundary> out) {
    if (planned.output.kind == Kind::none)
      return;
    if (planned.output.kind == Kind::local) {
      inputs_[planned.output.slot].tensor = std::move(out);
      return;
    }
    Channel& channel = channels_[planned.output.channel];
    if (channel.count == channel.sends.size())
      wait_for_oldest(channel, planned.action);
    Outgoing& outgoing = channel.sends[(channel.oldest + channel.count++) % channel.sends.size()];
    outgoing.tensor = std::move(out.value());
    order_call_after<Target>(outgoing.tensor->execution());
    issue({&planned.output, &outgoing});
  }

  /// Waits for every send; `last` is the rank's most recent action.
  void finish(const Action& last) {
    for (Channel& channel : channels_)
      while (channel.count > 0)
        wait_for_oldest(channel, last);
  }

private:
  // The memory must outlive its message.
  struct Input {
    std::optional<Boundary> tensor;
    Pending receive;
  };
  struct Outgoing {
    std::optional<Boundary> tensor;
    Pending send;
  };
  struct Channel {
    std::vector<Outgoing> sends; ///< A ring.
    std::size_t oldest = 0;
    std::size_t count = 0;
  };

  /// A message whose memory is ready.
  struct Ready {
    const PipelineMessage* message;
    Outgoing* outgoing; ///< Null for a receive.
  };

  /// Starts a message, or all that it completes a turn of.
  void issue(const Ready& one) {
    if (turns_ == nullptr)
      return start(one);
    const auto before = [this](const Ready& left, const Ready& right) {
      return turns_->place_of(left.message->handed) < turns_->place_of(right.message->handed);
    };
    ready_.insert(std::upper_bound(ready_.begin(), ready_.end(), one, before), one);
    const auto due = [this](const Ready& each) { return turns_->turn_of(each.message->handed) == turn_; };
    while (static_cast<std::size_t>(turn_) < turns_->sizes().size() &&
           std::count_if(ready_.begin(), ready_.end(), due) ==
               turns_->sizes()[static_cast<std::size_t>(turn_)]) {
      const auto exchange = ranks_.exchange();
      for (const Ready& each : ready_)
        if (due(each))
          start(each);
      std::erase_if(ready_, due);
      ++turn_;
    }
  }
  void start(const Ready& one) {
    const PipelineMessage& message = *one.message;
    if (one.outgoing != nullptr) {
      const Boundary& tensor = *one.outgoing->tensor;
      one.outgoing->send = ranks_.async().send(std::span<const Element>(tensor.data(), tensor.local_size()),
                                               message.peer, message.tag, where_);
      return;
    }
    Input& input = inputs_[message.slot];
    input.receive =
        ranks_.async().receive(std::span<Element>(input.tensor->mutable_data(), input.tensor->local_size()),
                               message.peer, message.tag, where_);
  }

  void wait_for_oldest(Channel& channel, const Action& action) {
    Outgoing& outgoing = channel.sends[channel.oldest];
    wait(outgoing.send, PipelineWork::wait_send, action);
    outgoing.tensor.reset();
    channel.oldest = (channel.oldest + 1) % channel.sends.size();
    --channel.count;
  }

  void wait(Pending& pending, PipelineWork work, const Action& action) {
    if (!recorder_.active() || pending.done())
      return pending.wait();
    const auto span = recorder_.span(work, action);
    pending.wait();
  }

  CommunicatorOf<Target> ranks_;
  std::vector<Input> inputs_;
  std::vector<Channel> channels_;
  TimelineRecorder& recorder_;
  SourceLocation where_{};
  const MessageTurns* turns_ = nullptr;
  int turn_ = 0;             ///< The next one.
  std::vector<Ready> ready_; ///< Messages of later turns, by place.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
