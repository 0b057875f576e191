// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The engine of a simulated step: ranks, messages and collectives as events in time order.
///
/// `schedule/simulation.hpp` proves schedules and takes maxima and sums in any order, at compile time too,
/// which `step_seconds_unshared` does with the operations of a step. If transfers share links, the end of one
/// depends on what others begin before then, so events must be processed in time order; hence a second
/// engine, which follows the same MessageWindow. Tests compare the two.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/plan/simulate/event_queue.hpp>
#include <shardwright/plan/simulate/link_network.hpp>
#include <shardwright/plan/simulate/rank_record.hpp>
#include <shardwright/plan/simulate/replica_classes.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/plan/simulate/step_program.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Runs a program on all classes of replicas.
class StepSimulator {
public:
  StepSimulator(const StepProgram& program, const ReplicaShape& shape, std::vector<ReplicaClass> classes,
                int levels, const SimulationOptions& options)
      : program_(program), schedule_(program.schedule), shape_(shape), classes_(std::move(classes)),
        levels_(levels), options_(options), network_(events_, options.contention),
        slots_(std::max(schedule_.window().sends_in_flight, 1)),
        collectives_(program.ranks.size() * program.collectives.size()) {
    for (std::size_t index = 0; index < classes_.size(); ++index)
      for (int rank = 0; rank < ranks(); ++rank)
        add_cell(static_cast<int>(index), rank);
    if (options_.contention && options_.oversubscription > 1)
      add_egress();
    messages_.resize(classes_.size() * message_count());
  }

  [[nodiscard]] StepSimulation run() {
    for (Cell& cell : cells_)
      advance(cell);
    for (SimulationEvent event; events_.take(event);) {
      const auto subject = static_cast<std::size_t>(event.subject);
      now_ = event.time;
      if (!event.transfer)
        finished(cells_[subject]);
      else if (network_.end(event))
        std::exchange(moved_[subject], nullptr)();
    }
    StepSimulation out{0, schedule_.placement(), schedule_.microbatches(), {}, 0, events_.count()};
    for (Cell& cell : cells_) {
      if (cell.at < program_.ranks[static_cast<std::size_t>(cell.rank)].size())
        throw InvalidArgument("Simulation: every rank must finish, but stage " + std::to_string(cell.rank) +
                              " waits forever (prove the schedule first)");
      out.classes.push_back(cell.record.take());
      out.step_seconds = std::max(out.step_seconds, out.classes.back().end);
      out.chips += out.classes.back().count;
    }
    return out;
  }

private:
  using Kind = StepOperation::Kind;

  /// The ranks of one stage of a class of replicas.
  struct Cell {
    int number = 0; ///< Its number within its class.
    int rank = 0;   ///< Its rank in its pipeline.
    std::size_t at = 0;
    bool busy = false; ///< Whether its current operation has begun and will end by itself.
    int posted = 0;    ///< Steps whose receives have begun.
    int hidden = 0;    ///< Transfers that overlap its pass.
    int first_link = 0;
    double link = 1; ///< Factor of its slowest chip's links.
    bool ended = false;
    int sent[4] = {};                     ///< By channel: activations and gradients, each in both directions.
    std::unique_ptr<bool[]> busy_slots{}; ///< By channel and slot.
    std::vector<LinkUse> egress{};
    RankRecord record;
  };
  struct Message {
    bool sent = false, posted = false, arrived = false;
    bool* busy = nullptr; ///< The slot that it occupies in its channel.
  };
  struct Collective {
    std::size_t joined = 0;
    double begun = 0;
    bool ended = false;
  };
  [[nodiscard]] int ranks() const { return static_cast<int>(program_.ranks.size()); }
  [[nodiscard]] std::size_t message_count() const {
    return 2 * static_cast<std::size_t>(schedule_.stages()) *
           static_cast<std::size_t>(schedule_.microbatches());
  }
  [[nodiscard]] Cell& cell_of(int number, int rank) {
    return cells_[static_cast<std::size_t>(number) * program_.ranks.size() + static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Collective& collective_of(int rank, int index) {
    return collectives_[static_cast<std::size_t>(rank) * program_.collectives.size() +
                        static_cast<std::size_t>(index)];
  }

  void add_cell(int number, int rank) {
    const ReplicaClass& one = classes_[static_cast<std::size_t>(number)];
    const auto found = one.slow.find(rank);
    const SlowCell slow = found == one.slow.end() ? SlowCell{} : found->second;
    RankClass alike{.pipeline_rank = rank,
                    .rank = shape_.first_rank(one.first, rank),
                    .count = one.count * shape_.cell_chips,
                    .slowest = slow.factor};
    Cell cell{.number = number, .rank = rank, .link = slow.link, .record{alike, number < options_.timelines}};
    cell.busy_slots = std::make_unique<bool[]>(static_cast<std::size_t>(4 * slots_));
    for (int level = 0; level < levels_; ++level)
      cell.first_link = network_.add_link(1 / cell.link) - level;
    cells_.push_back(std::move(cell));
  }

  /// Adds a link out of each innermost domain, which the cells in it share.
  void add_egress() {
    std::map<std::pair<int, std::int64_t>, int> shared; // by block and stages
    for (Cell& cell : cells_) {
      const ReplicaClass& one = classes_[static_cast<std::size_t>(cell.number)];
      const auto [at, added] = shared.try_emplace({one.block, cell.rank / shape_.stages_per_domain}, -1);
      if (added)
        at->second = network_.add_link(1 / options_.oversubscription);
      cell.egress.push_back({at->second, static_cast<double>(one.in_block) /
                                             static_cast<double>(shape_.block * shape_.stages_per_domain)});
    }
  }

  void add_uses(std::vector<LinkUse>& uses, const Cell& cell, std::size_t link) const {
    const LinkShares& shares = program_.shares[link];
    double out = 0;
    for (int level = 0; level < levels_; ++level)
      if (const double share = shares[static_cast<std::size_t>(level)]; share > 0) {
        uses.push_back({cell.first_link + level, share});
        out = level > 0 ? std::max(out, share) : out;
      }
    if (out > 0)
      for (const LinkUse& egress : cell.egress)
        uses.push_back({egress.link, egress.share * out});
  }
  /// Calls `moved()` at the end of a transfer.
  void begin_transfer(double seconds, std::vector<LinkUse> uses, std::function<void()> moved) {
    const auto number = static_cast<std::size_t>(network_.begin(now_, seconds, std::move(uses)));
    if (moved_.size() <= number)
      moved_.resize(number + 1);
    moved_[number] = std::move(moved);
  }
  void begin_transfer(double seconds, const Cell& cell, std::size_t link, std::function<void()> moved) {
    std::vector<LinkUse> uses;
    add_uses(uses, cell, link);
    begin_transfer(seconds, std::move(uses), std::move(moved));
  }

  [[nodiscard]] const Step* step_of(const Cell& cell, int index) const {
    return index < 0 ? nullptr : &schedule_.steps(cell.rank)[static_cast<std::size_t>(index)];
  }
  /// Records a rank's wait, if it had to wait, and lets it continue.
  bool pass(Cell& cell, Activity activity, int step) {
    cell.record.pass(activity, now_, step_of(cell, step));
    return true;
  }
  bool wait(Cell& cell) {
    cell.record.begin(now_);
    return false;
  }

  /// Advances a rank as far as it can get.
  void advance(Cell& cell) {
    const std::vector<StepOperation>& operations = program_.ranks[static_cast<std::size_t>(cell.rank)];
    while (!cell.busy && cell.at < operations.size() && begin(cell, operations[cell.at]))
      ++cell.at;
    if (cell.at == operations.size() && !cell.ended) {
      cell.record.end(now_);
      cell.ended = true;
    }
  }

  /// Begins an operation; returns whether it has already ended.
  bool begin(Cell& cell, const StepOperation& operation) {
    switch (operation.kind) {
    case Kind::receive:
      return receive(cell, operation);
    case Kind::compute:
      cell.busy = true;
      cell.record.begin(now_);
      events_.add(now_ + operation.seconds * cell.record.result().slowest * noise(cell, operation),
                  static_cast<int>(&cell - cells_.data()));
      return false;
    case Kind::move:
      cell.busy = true;
      cell.record.begin(now_);
      begin_transfer(operation.seconds, cell, operation.link, [this, &cell] { finished(cell); });
      return false;
    case Kind::hide:
      ++cell.hidden;
      begin_transfer(operation.seconds, cell, operation.link, [this, &cell, &operation, begun = now_] {
        cell.record.pass_beside(operation.activity, begun, now_, step_of(cell, operation.index));
        --cell.hidden;
        advance(cell);
      });
      return true;
    case Kind::settle:
      return cell.hidden > 0 ? wait(cell) : pass(cell, operation.activity, operation.index);
    case Kind::send:
      return send(cell, operation);
    case Kind::join:
      return join(cell, operation);
    case Kind::await:
      return await(cell, operation);
    }
    return true;
  }

  /// 1, or more with jitter: the slowest of n chips that step together has the largest of n draws, whose
  /// distribution function is that of one draw to the power n.
  [[nodiscard]] double noise(const Cell& cell, const StepOperation& operation) const {
    if (options_.jitter <= 0 || operation.activity != Activity::compute)
      return 1;
    const PhiloxWords words =
        random_words({options_.seed, static_cast<std::uint64_t>(cell.record.result().rank)},
                     static_cast<std::uint64_t>(operation.index));
    const double all = std::pow(unit_interval(words.word[0]), 1 / static_cast<double>(shape_.cell_chips));
    return 1 - options_.jitter * std::log1p(-all);
  }

  // A rank posts the receives of the steps in its window, and waits for those of its current step.
  bool receive(Cell& cell, const StepOperation& operation) {
    const std::span<const Step> steps = schedule_.steps(cell.rank);
    const int until = std::min(operation.index + std::max(schedule_.window().receive_ahead, 0) + 1,
                               static_cast<int>(steps.size()));
    for (; cell.posted < until; ++cell.posted)
      for (int i = 0; i < steps[static_cast<std::size_t>(cell.posted)].size(); ++i)
        if (const auto in = input(steps[static_cast<std::size_t>(cell.posted)][i])) {
          Message& message = messages_[index_of(cell.number, *in)];
          message.posted = true;
          if (message.sent)
            begin_message(cell.number, *in);
        }
    const Step& step = steps[static_cast<std::size_t>(operation.index)];
    for (int i = 0; i < step.size(); ++i)
      if (const auto in = input(step[i]); in && !messages_[index_of(cell.number, *in)].arrived)
        return wait(cell);
    return pass(cell, operation.activity, operation.index);
  }
  bool send(Cell& cell, const StepOperation& operation) {
    const Step& step = schedule_.steps(cell.rank)[static_cast<std::size_t>(operation.index / 2)];
    const StageMessage made = *output_of(schedule_.placement(), step[operation.index % 2]);
    int& sent = cell.sent[channel_of(made)];
    bool& busy = cell.busy_slots[static_cast<std::size_t>(channel_of(made) * slots_ + sent % slots_)];
    if (busy)
      return wait(cell);
    pass(cell, operation.activity, operation.index / 2);
    busy = true;
    ++sent;
    Message& message = messages_[index_of(cell.number, made)];
    message.sent = true;
    message.busy = &busy;
    if (message.posted)
      begin_message(cell.number, made);
    return true;
  }

  [[nodiscard]] std::optional<StageMessage> input(const Action& action) const {
    const std::optional<StageMessage> in = input_of(schedule_.placement(), action);
    return in && in->is_sent() ? in : std::nullopt;
  }
  [[nodiscard]] std::size_t index_of(int number, const StageMessage& message) const {
    return static_cast<std::size_t>(number) * message_count() +
           2 * (static_cast<std::size_t>(message.stage) * static_cast<std::size_t>(schedule_.microbatches()) +
                static_cast<std::size_t>(message.microbatch)) +
           (message.gradient ? 1 : 0);
  }
  /// Activations and gradients have a channel each in either direction.
  [[nodiscard]] int channel_of(const StageMessage& message) const {
    const StagePlacement& placement = schedule_.placement();
    return (message.gradient ? 2 : 0) +
           (placement.runs_back(placement.chunk_of(message.stage, message.microbatch)) ? 1 : 0);
  }
  void begin_message(int number, const StageMessage& sent) {
    Cell &from = cell_of(number, sent.from_rank), &to = cell_of(number, sent.to_rank);
    Message& message = messages_[index_of(number, sent)];
    // Links carry as much in each direction; incoming transfers share none.
    begin_transfer(program_.send_seconds * std::max(1.0, to.link / from.link), from, program_.send_link,
                   [this, &from, &to, &message, begun = now_] {
                     message.arrived = true;
                     *message.busy = false;
                     from.record.pass_beside(Activity::pipeline, begun, now_, nullptr);
                     advance(to);
                     advance(from);
                   });
  }

  // A collective begins once every replica has joined it.
  bool join(Cell& cell, const StepOperation& operation) {
    Collective& one = collective_of(cell.rank, operation.index);
    if (++one.joined < classes_.size())
      return true;
    one.begun = now_;
    const StageCollective& what = program_.collectives[static_cast<std::size_t>(operation.index)];
    std::vector<LinkUse> uses;
    for (int number = 0; number < static_cast<int>(classes_.size()); ++number)
      add_uses(uses, cell_of(number, cell.rank), what.link);
    begin_transfer(what.seconds, std::move(uses), [this, &one, rank = cell.rank] {
      one.ended = true;
      for (int number = 0; number < static_cast<int>(classes_.size()); ++number) {
        Cell& other = cell_of(number, rank);
        other.record.pass_beside(Activity::data, one.begun, now_, nullptr);
        advance(other);
      }
    });
    return true;
  }
  bool await(Cell& cell, const StepOperation& operation) {
    const Collective& one = collective_of(cell.rank, operation.index);
    if (!one.ended)
      return wait(cell);
    cell.record.pass(Activity::data, now_, nullptr, one.begun);
    return true;
  }

  /// Continues after an operation that involved one rank only.
  void finished(Cell& cell) {
    const StepOperation& operation = program_.ranks[static_cast<std::size_t>(cell.rank)][cell.at];
    cell.busy = false;
    ++cell.at;
    pass(cell, operation.activity, operation.index);
    advance(cell);
  }

  const StepProgram& program_;
  const Schedule& schedule_;
  ReplicaShape shape_;
  std::vector<ReplicaClass> classes_;
  int levels_;
  const SimulationOptions& options_;
  EventQueue events_;
  LinkNetwork network_;
  int slots_;
  std::vector<Cell> cells_;
  std::vector<Message> messages_;
  std::vector<Collective> collectives_;
  std::vector<std::function<void()>> moved_; // by transfer
  double now_ = 0;
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
