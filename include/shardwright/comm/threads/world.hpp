// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state that all thread ranks of one launch share: options, recorders, the list of groups, the
/// first failure.

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/observe/flight_dump.hpp>
#include <shardwright/comm/observe/flight_recorder.hpp>
#include <shardwright/comm/threads/wait_point.hpp>
#include <shardwright/comm/wait_graph.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The interface of a group to its world: ending the group, and the ranks for which its ranks wait.
class GroupOfWorld {
public:
  virtual ~GroupOfWorld() = default;
  virtual void fail(const FailurePointer& failure) noexcept = 0;
  /// World ranks for which a rank's current call waits at this moment; none if it can proceed.
  [[nodiscard]] virtual std::vector<int> awaited(int world_rank, const FlightEntry& entry) = 0;
  /// Its name and its members.
  [[nodiscard]] virtual FlightGroup flight_group() const = 0;
  /// A rank has left: collectives end, but messages between the others continue. Does nothing if it is not a
  /// member.
  virtual void leave(int world_rank, const FailurePointer& failure) noexcept = 0;
};

/// Shared state of the ranks of one launch.
///
/// The failures that may be needed when there is no memory are allocated with the world.
class ThreadWorld final : public WaitGraph, public std::enable_shared_from_this<ThreadWorld> {
public:
  ThreadWorld(int ranks, const LaunchOptions& options)
      : ranks_(ranks), options_(bounded(options)), cores_(usable_cores()),
        places_(std::make_unique<Place[]>(static_cast<std::size_t>(ranks))),
        recorders_(std::make_unique<FlightRecorder[]>(static_cast<std::size_t>(ranks))),
        given_up_(static_cast<std::size_t>(ranks)), programs_(static_cast<std::size_t>(ranks)),
        finishing_(made(Failure::Kind::finished, -1, "")) {
    for (int rank = 0; rank < ranks; ++rank) {
      returned_.push_back(
          made(Failure::Kind::left, rank, "its program returned while other ranks of the group continued"));
      const auto failure = made(Failure::Kind::failed, rank, out_of_memory);
      failure->unwinding = true;
      out_of_memory_.push_back(failure);
    }
  }

  [[nodiscard]] int ranks() const noexcept override { return ranks_; }
  [[nodiscard]] bool check() const noexcept { return options_.check; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept { return options_.deadline; }
  [[nodiscard]] std::chrono::nanoseconds notice() const noexcept { return options_.notice; }
  /// The time that programs have to end after a failure.
  [[nodiscard]] std::chrono::nanoseconds grace() const noexcept {
    constexpr std::chrono::nanoseconds least = std::chrono::seconds(10);
    return options_.grace > std::chrono::nanoseconds::zero() ? options_.grace
                                                             : std::max(options_.deadline, least);
  }
  [[nodiscard]] FlightRecorder& recorder(int rank) const noexcept {
    return recorders_[static_cast<std::size_t>(rank)];
  }
  /// Whether ranks share cores.
  [[nodiscard]] bool crowded() const noexcept { return ranks_ > cores_; }
  /// Publishes the core of the calling thread, which enters a call for a rank.
  void note_core(int rank) noexcept {
    std::atomic<int>& known = core_of(rank);
    // Others read it in every wait, so it is written only if it changes.
    if (const int core = this_core(); known.load(std::memory_order_relaxed) != core)
      known.store(core, std::memory_order_relaxed);
  }
  /// The core on which a rank entered its last call; -1 if that is not known.
  [[nodiscard]] int known_core(int rank) const noexcept {
    return core_of(rank).load(std::memory_order_relaxed);
  }
  /// Whether a rank was last seen on the core of the calling thread, which waits for it.
  [[nodiscard]] bool is_on_this_core(int rank) const noexcept {
    const int core = this_core();
    return core >= 0 && known_core(rank) == core;
  }
  /// Of a thread that runs the program.
  [[nodiscard]] Patience patience() const noexcept { return Patience::of(ranks_, cores_); }
  /// Of a thread beside which a second one of its rank runs, and of that one.
  [[nodiscard]] Patience patience_beside_worker() const noexcept { return Patience::of(2 * ranks_, cores_); }

  /// A copy of the name that lives as long as the world.
  [[nodiscard]] const char* intern(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (const auto& known : names_)
      if (*known == name)
        return known->c_str();
    return names_.emplace_back(std::make_unique<const std::string>(name))->c_str();
  }

  /// The failure of a rank that ran out of memory, possibly while it built another failure. Its exception is
  /// propagating.
  [[nodiscard]] const FailurePointer& out_of_memory_on(int rank) const noexcept {
    return out_of_memory_[static_cast<std::size_t>(rank)];
  }

  /// Keeps something that other ranks may read until all programs have ended.
  void keep(std::shared_ptr<void> kept) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(kept));
  }
  void let_go(const std::shared_ptr<void>& kept) noexcept {
    const std::lock_guard lock(mutex_);
    kept_.erase(std::remove(kept_.begin(), kept_.end(), kept), kept_.end());
  }

  /// Adds a group; one added after the world's end is ended immediately.
  void enter(GroupOfWorld* group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
    if (failure_)
      group->fail(failure_);
  }
  void leave(GroupOfWorld* group) noexcept {
    const std::lock_guard lock(mutex_);
    groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
  }

  /// Ends every group, waking all waiters; the first failure applies.
  void end(const FailurePointer& failure) noexcept {
    write_flights(*failure);
    {
      const std::lock_guard lock(mutex_);
      if (!failure_)
        failure_ = failure;
      for (GroupOfWorld* group : groups_)
        group->fail(failure_);
    }
    failed_.store(true, std::memory_order_seq_cst);
    programs_end_.notify();
  }
  [[nodiscard]] FailurePointer failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// At the first failure, before other ranks learn of it: dumps what every rank was doing. Only once: end()
  /// and enter() come here again with the mutex held.
  void write_flights(const Failure& failure) noexcept {
    const char* const directory = flight_directory();
    if (directory == nullptr || failure.kind == Failure::Kind::finished || flights_written_.exchange(true))
      return;
    try {
      std::vector<FlightDump> dumps;
      {
        const std::lock_guard lock(mutex_);
        for (int rank = 0; rank < ranks_; ++rank)
          dumps.push_back(flight_of(rank));
      }
      write_flights_of(dumps, directory, failure);
    } catch (...) { // no memory
    }
  }

  /// A rank's program has ended: its groups cannot continue without it.
  void rank_left(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    for (GroupOfWorld* group : groups_)
      group->leave(rank, returned_[static_cast<std::size_t>(rank)]);
  }

  /// Before a rank's thread starts, and when its program has ended in any way.
  void program_begins(int rank) noexcept { program(rank).store(true, std::memory_order_seq_cst); }
  void program_ends(int rank) noexcept {
    program(rank).store(false, std::memory_order_seq_cst);
    programs_end_.notify();
  }
  [[nodiscard]] bool runs(int rank) const noexcept {
    return programs_[static_cast<std::size_t>(rank)].load(std::memory_order_seq_cst);
  }
  /// Waits until all programs have ended; false if some run for longer than the grace period after a failure.
  [[nodiscard]] bool await_programs() noexcept {
    const auto ended = [this] {
      return std::none_of(programs_.begin(), programs_.end(),
                          [](const auto& each) { return each.load(std::memory_order_seq_cst); });
    };
    const auto failed = [this] { return failed_.load(std::memory_order_seq_cst); };
    while (!programs_end_.wait([&] { return ended() || failed(); }, Patience{}, std::chrono::hours(1))) {
    }
    return programs_end_.wait(ended, Patience{}, grace());
  }

  /// All ranks' programs have ended: handles that outlive them become invalid.
  void finish() noexcept {
    finished_.store(true, std::memory_order_seq_cst);
    end(finishing_);
    std::vector<std::shared_ptr<void>> kept; // may hold groups, which leave the world under its mutex
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_seq_cst); }

  [[nodiscard]] RankWait at(int rank) const override {
    const std::lock_guard lock(mutex_);
    return wait_of(rank);
  }
  /// A rank that has begun what another one needs is not among those for which that one waits.
  [[nodiscard]] bool in_vain(int, int) const override { return true; }
  /// Records that a rank leaves its call at a deadline: it counts as waiting until it begins another call.
  void note_given_up(int rank, const FailurePointer& failure) noexcept {
    const std::lock_guard lock(mutex_);
    given_up_[static_cast<std::size_t>(rank)] = {failure, recorder(rank).newest()};
  }

private:
  struct GivenUp {
    FailurePointer failure;
    FlightRecorder::Ticket newest = 0; ///< At that time.
  };
  struct alignas(128) Place {
    std::atomic<int> core{-1};
  };

  [[nodiscard]] static std::shared_ptr<Failure> made(Failure::Kind kind, int rank, const char* sentence) {
    auto out = std::make_shared<Failure>();
    out->kind = kind;
    out->rank = rank;
    out->sentence = sentence;
    return out;
  }
  [[nodiscard]] std::atomic<int>& core_of(int rank) const noexcept {
    return places_[static_cast<std::size_t>(rank)].core;
  }
  [[nodiscard]] std::atomic<bool>& program(int rank) noexcept {
    return programs_[static_cast<std::size_t>(rank)];
  }

  /// Under the mutex. A rank that waits in several calls on several threads may proceed in one of them and
  /// help another.
  [[nodiscard]] RankWait wait_of(int rank) const {
    const FlightRecorder& own = recorder(rank);
    const FlightRecorder::Ticket top = own.newest();
    RankWait out;
    const GivenUp& given_up = given_up_[static_cast<std::size_t>(rank)];
    if (given_up.failure && given_up.newest == top) // left its newest call at a deadline
      return {RankWait::State::waits, top, given_up.failure->missing, given_up.failure->missing};
    int calls = 0;
    for (FlightRecorder::Ticket ticket = top; ticket-- > 1 && top - ticket <= FlightRecorder::kept;) {
      const std::optional<FlightEntry> entry = own.entry(ticket);
      if (!entry || !entry->inside)
        continue;
      std::vector<int> ranks;
      for (GroupOfWorld* const group : groups_)
        if (group == entry->group_id)
          ranks = group->awaited(rank, *entry);
      out.in_flight.insert(out.in_flight.end(), ranks.begin(), ranks.end());
      if (entry->waited && ++calls == 1) {
        out.version = ticket;
        out.waits_for = std::move(ranks);
      }
    }
    if (calls > 1)
      out.waits_for.clear();
    if (!out.in_flight.empty()) // it may poll the started ones
      out.state = RankWait::State::waits;
    return out;
  }

  /// Under the mutex.
  [[nodiscard]] FlightDump flight_of(int rank) {
    FlightDump out{rank, ranks_, recorder(rank).describe(), wait_of(rank).waits_for, {}, {}};
    for (const GroupOfWorld* const group : groups_) {
      FlightGroup one = group->flight_group();
      if (std::find(one.members.begin(), one.members.end(), rank) != one.members.end())
        add_group(out, group, std::move(one));
    }
    const FlightRecorder::Ticket top = recorder(rank).newest();
    const FlightRecorder::Ticket bottom = top > FlightRecorder::kept ? top - FlightRecorder::kept : 1;
    for (FlightRecorder::Ticket ticket = bottom; ticket < top; ++ticket)
      if (const std::optional<FlightEntry> entry = recorder(rank).entry(ticket)) {
        const std::size_t group = add_group(out, entry->group_id, {0, entry->group, {rank}});
        out.calls.push_back({ticket, group, entry->operation, entry->sequence, entry->peer, entry->tag,
                             entry->where.file, entry->where.line, entry->inside});
      }
    return out;
  }

  const int ranks_;
  const LaunchOptions options_;
  const int cores_;
  const std::unique_ptr<Place[]> places_;
  std::unique_ptr<FlightRecorder[]> recorders_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const std::string>> names_;
  std::vector<GroupOfWorld*> groups_;
  std::vector<std::shared_ptr<void>> kept_;
  FailurePointer failure_;
  std::atomic<bool> finished_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> flights_written_{false};
  std::vector<GivenUp> given_up_;           ///< By rank.
  std::vector<std::atomic<bool>> programs_; ///< Whether each rank's program runs.
  WaitPoint programs_end_;
  std::vector<FailurePointer> returned_, out_of_memory_; ///< By rank.
  FailurePointer finishing_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
