// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The shared memory of the ranks of one node: the last call of each, and why one has failed.

#include <shardwright/comm/cores.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/mpi/last_call.hpp>
#include <shardwright/comm/mpi/node_exchange.hpp>
#include <shardwright/comm/mpi/node_memory.hpp>
#include <shardwright/comm/mpi/node_waits.hpp>
#include <shardwright/comm/mpi/process.hpp>
#include <shardwright/comm/mpi/process_memory.hpp>
#include <shardwright/comm/mpi/shared_segment.hpp>
#include <shardwright/comm/observe/flight_dump.hpp>
#include <shardwright/comm/wait_graph.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One slot for each rank of the world; ranks on other nodes stay unknown until a message reports their
/// failure.
///
/// Readable without the help of its writer, so that a frozen or dead rank can be named with its last call.
class MpiNode final : public WaitGraph {
public:
  /// Maps the segment `name`, which one rank of the node `creates`, filled with zeros, before the others
  /// arrive: a rank that is too late finds none, and leaves none behind. The last of the ranks `here`, which
  /// ascend, unlinks it; a rank that gives up earlier calls unlink().
  MpiNode(std::string name, int ranks, int own_rank, const std::vector<int>& here, bool creates)
      : ranks_(ranks), own_(own_rank),
        segment_(std::move(name), bytes(ranks, here.size()), NodeExchange::bytes(here.size()), creates),
        header_(static_cast<Header*>(segment_.memory())), waits_(&slot(ranks), ranks, here),
        exchange_(memory_of_exchange(creates), here) {
    Slot& mine = slot(own_);
    mine.pid.store(::getpid(), std::memory_order_relaxed);
    mine.pid_namespace.store(pid_namespace(), std::memory_order_relaxed);
    mine.address_of_rank.store(reinterpret_cast<std::uintptr_t>(&own_), std::memory_order_relaxed);
    const UsableCores cores;
    for (std::size_t i = 0; i < cores.bits.size(); ++i)
      mine.cores[i].store(cores.bits[i], std::memory_order_relaxed);
    mine.state.store(RankState::running, std::memory_order_release);
    if (header_->opened.fetch_add(1) + 1 == static_cast<std::int32_t>(here.size()))
      unlink();
  }
  MpiNode(const MpiNode&) = delete;
  MpiNode& operator=(const MpiNode&) = delete;

  /// Removes the name, so that nothing is left behind whatever happens later; the mapping stays. For a rank
  /// that no longer waits for the others.
  void unlink() const noexcept { segment_.unlink(); }

  /// Records which ranks' processes are visible from here, so that one that disappears later is detected.
  void watch_processes() {
    for (int rank = 0; rank < ranks_; ++rank)
      if (rank != own_ && sees(rank) && !process_gone(rank))
        watched_.push_back(rank);
  }
  /// Finds out whether this rank may read the memory of the others; all have opened the segment.
  void try_to_read() noexcept {
    for (const int rank : waits_.here()) {
      int found = -1;
      const auto word = contiguous_block(0, sizeof found);
      if (!sees(rank) ||
          read_memory(slot(rank).pid, slot(rank).address_of_rank, word, 0,
                      reinterpret_cast<std::byte*>(&found), word) != 0 ||
          found != rank)
        return;
    }
    header_->readers.fetch_add(1);
  }
  /// The process of a rank of this node if all of its ranks may read one another's memory, or 0; once all
  /// have tried.
  [[nodiscard]] int readable_process(int rank) const noexcept {
    return header_->readers.load() == static_cast<std::int32_t>(waits_.here().size()) ? slot(rank).pid.load()
                                                                                      : 0;
  }
  /// Whether the process of a rank is visible here: on the same node, and in the same PID namespace.
  [[nodiscard]] bool sees(int rank) const noexcept {
    const Slot& one = slot(rank);
    return one.pid.load(std::memory_order_relaxed) > 0 &&
           one.pid_namespace.load(std::memory_order_relaxed) ==
               slot(own_).pid_namespace.load(std::memory_order_relaxed);
  }
  /// The process of a rank for which sees() is true.
  [[nodiscard]] ProcessState process(int rank) const noexcept {
    return state_of_process(slot(rank).pid.load(std::memory_order_relaxed));
  }
  /// Whether a rank's process is known not to run.
  [[nodiscard]] bool halted(int rank) const noexcept {
    return sees(rank) && process(rank) != ProcessState::alive;
  }
  [[nodiscard]] const NodeExchange& exchange() const noexcept { return exchange_; }
  [[nodiscard]] int ranks() const noexcept override { return ranks_; }
  [[nodiscard]] int own_rank() const noexcept { return own_; }
  /// Number of cores that the ranks of this node may use altogether.
  [[nodiscard]] int cores() const noexcept {
    UsableCores::Bits all{};
    for (int rank = 0; rank < ranks_; ++rank)
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] |= slot(rank).cores[i].load(std::memory_order_relaxed);
    return UsableCores::count(all);
  }
  /// A watched rank whose process is gone although it neither finished nor failed; -1 if none.
  [[nodiscard]] int dead_rank() const noexcept {
    for (const int rank : watched_)
      if (is_dead(rank))
        return rank;
    return -1;
  }
  /// The same, but only for the next watched rank: if every rank does so, each is watched once.
  [[nodiscard]] int dead_successor() const noexcept {
    for (const bool wrapped : {false, true})
      for (const int rank : watched_)
        if ((rank > own_ || wrapped) && state(rank) == RankState::running)
          return is_dead(rank) ? rank : -1;
    return -1;
  }

  /// Writes this rank's current call: the first `count` words of the record.
  void publish(const MpiLastCall& record, std::size_t count = words_per_record) noexcept {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
    write([bytes, count](Slot& mine) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + 8 * i, sizeof word);
        mine.record[i].store(word, std::memory_order_relaxed);
      }
    });
  }
  /// Records that this rank's current call has ended.
  void publish_end() noexcept {
    constexpr std::size_t at = offsetof(MpiLastCall, stage);
    write([](Slot& mine) {
      std::uint64_t word = mine.record[at / 8].load(std::memory_order_relaxed);
      const auto ended = MpiLastCall::Stage::ended;
      std::memcpy(reinterpret_cast<std::byte*>(&word) + at % 8, &ended, sizeof ended);
      mine.record[at / 8].store(word, std::memory_order_relaxed);
    });
  }
  using Clock = std::chrono::steady_clock; ///< Shared by all processes of a machine.
  /// Records that this rank has begun a call, or has polled for messages in one, and on which core.
  void beat(Clock::time_point now) noexcept {
    slot(own_).beat.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    slot(own_).core_and_one.store(this_core() + 1, std::memory_order_relaxed);
  }
  /// Whether a rank was last seen on the core of the calling thread.
  [[nodiscard]] bool is_on_this_core(int rank) const noexcept {
    const int core = this_core();
    return core >= 0 && slot(rank).core_and_one.load(std::memory_order_relaxed) == core + 1;
  }
  [[nodiscard]] Clock::time_point last_beat(int rank) const noexcept {
    return Clock::time_point(Clock::duration(slot(rank).beat.load(std::memory_order_relaxed)));
  }
  /// Records the ranks for which this rank waits in its current call, and in all of its calls in flight.
  void publish_waits(const std::vector<int>& in_call, const std::vector<int>& in_flight) noexcept {
    waits_.publish(own_, version(own_), in_call, in_flight);
  }
  /// Answers the ranks of this node that wait for this one, which is inside a call and stays there.
  /// @param lacks Returns whether this rank has yet to begin what a call of another rank needs of it.
  template <class Lacks> void answer_waits(Lacks&& lacks) {
    for (const int rank : waits_.here()) {
      const std::uint32_t before = version(rank);
      if (rank == own_ || !waits_.holds(rank, before) || !waits_.awaits(rank, own_))
        continue;
      const MpiLastCall call = last_call(rank);
      if (version(rank) == before)
        waits_.answer(own_, version(own_), rank, before, lacks(call, rank));
    }
  }
  /// This rank leaves its current call by an error, so that it may begin something.
  void withdraw_answers() noexcept { waits_.withdraw_answers(own_); }
  /// Records that this rank leaves its current call because others did not arrive.
  void give_up() noexcept { waits_.give_up(own_, version(own_)); }
  /// Version of the record of a rank's last call, which changes when the rank proceeds.
  [[nodiscard]] std::uint32_t version(int rank) const noexcept {
    return slot(rank).version.load(std::memory_order_acquire);
  }
  /// Whether a rank gave up its last call because others did not arrive.
  [[nodiscard]] bool gave_up(int rank) const noexcept { return waits_.gave_up(rank, version(rank)); }

  [[nodiscard]] RankWait at(int rank) const override {
    RankWait out;
    out.version = version(rank);
    out.seen = gave_up(rank) ? Clock::time_point::max() : last_beat(rank);
    if (state(rank) == RankState::unknown)
      out.state = RankWait::State::elsewhere;
    else if (halted(rank))
      out.state = RankWait::State::stopped;
    else if (waits_.holds(rank, version(rank)))
      out.state = RankWait::State::waits;
    if (!waits_.holds(rank, version(rank)))
      return out;
    out.waits_for = waits_.of(rank, false);
    out.in_flight = waits_.of(rank, true);
    return out;
  }
  [[nodiscard]] bool in_vain(int rank, int other) const override {
    return waits_.covers(other) && waits_.holds(other, version(other)) &&
           waits_.lacks(other, version(other), rank, version(rank));
  }

  /// The last call of a rank; a record with stage none if it is unknown.
  [[nodiscard]] MpiLastCall last_call(int rank) const noexcept {
    const Slot& one = slot(rank);
    Words words{};
    // A rank that is stopped in the middle of publishing leaves an odd version forever: then use the record
    // as it is.
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const std::uint32_t before = one.version.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = one.record[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && one.version.load(std::memory_order_relaxed) == before)
        break;
    }
    MpiLastCall record;
    std::memcpy(&record, words.data(), sizeof record);
    record.group.back() = '\0';
    record.file.back() = '\0';
    return record;
  }

  /// The activity of a rank, as text for an error.
  [[nodiscard]] std::string report(int rank) const {
    if (state(rank) == RankState::unknown)
      return "it runs on another node";
    const MpiLastCall last = last_call(rank);
    if (sees(rank) && process(rank) != ProcessState::alive)
      return (process(rank) == ProcessState::gone ? "its process is gone; "
                                                  : "its process is stopped (by a signal or a debugger); ") +
             last.text();
    const Clock::duration silence = Clock::now() - last_beat(rank);
    if (last.stage != MpiLastCall::Stage::inside || silence < std::chrono::seconds(1))
      return last.text();
    return last.text() + ", but it has not polled for messages for " + time_text(silence);
  }

  [[nodiscard]] RankState state(int rank) const noexcept {
    return slot(rank).state.load(std::memory_order_acquire);
  }
  /// Records that this rank will make no more calls; a failed rank stays failed.
  void finish() noexcept {
    RankState running = RankState::running;
    slot(own_).state.compare_exchange_strong(running, RankState::finished, std::memory_order_release);
  }

  /// Records that this rank has nothing left to do but to finalise MPI.
  void come_to_end() noexcept { slot(own_).at_end.store(true, std::memory_order_release); }
  [[nodiscard]] bool at_end(int rank) const noexcept {
    return slot(rank).at_end.load(std::memory_order_acquire);
  }

  /// Records why a rank ended the whole world, once.
  void fail_world(int rank, Failure::Kind kind, std::string_view sentence) noexcept {
    Slot& one = slot(rank);
    std::uint32_t expected = 0;
    if (!one.world_failure.begun.compare_exchange_strong(expected, 1))
      return;
    write_flights(rank, kind, sentence);
    one.world_failure.write(0, kind, sentence);
    one.state.store(RankState::failed, std::memory_order_release);
    std::int32_t none = 0;
    header_->first_failure.compare_exchange_strong(none, rank + 1);
  }
  /// Records why a rank ended one group; the latest reason is kept.
  void fail_group(int rank, std::uint64_t group_id, Failure::Kind kind, std::string_view sentence) noexcept {
    write_flights(rank, kind, sentence);
    slot(rank).group_failure.write(group_id, kind, sentence);
    header_->group_failures.fetch_add(1, std::memory_order_release);
  }
  /// Number of calls of fail_group on this node, which shows cheaply whether there is anything to read.
  [[nodiscard]] std::uint32_t group_failures() const noexcept {
    return header_->group_failures.load(std::memory_order_acquire);
  }
  /// At the first failure, before the ranks learn of it: dumps what each rank of this node was doing, even if
  /// it is stuck or gone.
  void write_flights(int failed, Failure::Kind kind, std::string_view sentence) const noexcept {
    const char* const directory = flight_directory();
    if (directory == nullptr || header_->flights_written.exchange(true))
      return;
    try {
      std::vector<FlightDump> dumps;
      for (int rank = 0; rank < ranks_; ++rank)
        if (state(rank) != RankState::unknown) // of this node
          dumps.push_back(flight_of(last_call(rank), rank, ranks_, report(rank), at(rank).waits_for));
      gather_members(dumps);
      write_flights_of(dumps, directory, {kind, failed, std::string(sentence), {}, 0, false});
    } catch (...) { // no memory
    }
  }
  /// Records that a rank's process is gone, and in which call it was.
  void fail_dead(int rank) noexcept {
    try {
      fail_world(rank, Failure::Kind::left,
                 "its process ended without a message (killed by a signal, or by _exit); " +
                     last_call(rank).text());
    } catch (...) {
      fail_world(rank, Failure::Kind::left, "its process ended without a message");
    }
    slot(rank).state.store(RankState::dead, std::memory_order_release);
  }
  /// True for the first rank of the node that calls it: it reports the first failure, and the others need
  /// not.
  [[nodiscard]] bool first_to_tell() noexcept { return !header_->told.exchange(true); }
  /// True for the first rank of the node that waits long in a call, given a hash of the call and its group.
  [[nodiscard]] bool first_to_notice(std::uint64_t call) noexcept {
    return header_->noticed.exchange(call) != call;
  }
  /// The rank that ended the world first, or -1.
  [[nodiscard]] int first_failure() const noexcept {
    return header_->first_failure.load(std::memory_order_acquire) - 1;
  }
  /// Why a rank ended the world; only for a rank in the state `failed`.
  [[nodiscard]] Failure world_failure(int rank) const { return slot(rank).world_failure.read(rank); }
  /// Whether a rank has ended a group, and why.
  [[nodiscard]] std::optional<Failure> group_failure(int rank, std::uint64_t group_id) const {
    const MpiCause& cause = slot(rank).group_failure;
    if (cause.group_id.load(std::memory_order_acquire) != group_id)
      return std::nullopt;
    return cause.read(rank);
  }
  /// Ranks other than this one that still run.
  [[nodiscard]] int others_running() const noexcept {
    int count = 0;
    for (int rank = 0; rank < ranks_; ++rank)
      count += rank != own_ && state(rank) == RankState::running ? 1 : 0;
    return count;
  }

private:
  using Header = NodeHeader;
  using Slot = NodeSlot;
  static constexpr std::size_t words_per_record = NodeSlot::words_per_record;
  using Words = std::array<std::uint64_t, words_per_record>;

  /// Changes words of this rank's record; concurrent readers retry.
  template <class Change> void write(Change change) noexcept {
    Slot& mine = slot(own_);
    const std::uint32_t version = mine.version.load(std::memory_order_relaxed);
    mine.version.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    change(mine);
    mine.version.store(version + 2, std::memory_order_release);
  }

  [[nodiscard]] Slot& slot(int rank) const noexcept { return reinterpret_cast<Slot*>(header_ + 1)[rank]; }

  [[nodiscard]] bool process_gone(int rank) const noexcept {
    return !process_exists(slot(rank).pid.load(std::memory_order_relaxed));
  }
  /// The state is read again, since a rank may finish and exit between the two reads.
  [[nodiscard]] bool is_dead(int rank) const noexcept {
    return state(rank) == RankState::running && process_gone(rank) && state(rank) == RankState::running;
  }

  /// Without the exchange, which comes last, at a cache line.
  [[nodiscard]] static std::size_t bytes(int ranks, std::size_t ranks_here) noexcept {
    const std::size_t all =
        sizeof(Header) + static_cast<std::size_t>(ranks) * sizeof(Slot) + NodeWaits::bytes(ranks, ranks_here);
    return (all + 63) / 64 * 64;
  }
  [[nodiscard]] void* memory_of_exchange(bool creates) const noexcept {
    if (creates)
      header_->has_exchange.store(segment_.has_more());
    return header_->has_exchange.load()
               ? static_cast<std::byte*>(segment_.memory()) + bytes(ranks_, waits_.here().size())
               : nullptr;
  }

  int ranks_;
  int own_;
  SharedSegment segment_;
  Header* header_; ///< The slots follow, and then the memory of the next two members.
  NodeWaits waits_;
  NodeExchange exchange_;
  std::vector<int> watched_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
