// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state that all thread ranks of one launch share: options, recorders, the register of groups,
/// the first failure.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/flight_recorder.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/threads/core_balance.hpp>
#include <shardwright/comm/threads/wait_point.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Bytes of the last-level cache that one core reaches; 32 MiB where the system does not say.
[[nodiscard]] inline std::size_t last_level_cache_bytes() noexcept {
  static const std::size_t bytes = [] {
    unsigned long kibibytes = 0;
#if defined(__linux__)
    // The C library may count the caches of a whole processor of which a core reaches only one part.
    if (std::FILE* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
      if (std::fscanf(file, "%luK", &kibibytes) != 1)
        kibibytes = 0;
      std::fclose(file);
    }
#endif
#if defined(_SC_LEVEL3_CACHE_SIZE)
    if (const long all = sysconf(_SC_LEVEL3_CACHE_SIZE); kibibytes == 0 && all > 0)
      return static_cast<std::size_t>(all);
#endif
    return std::size_t{kibibytes > 0 ? kibibytes : 32UL << 10U} << 10U;
  }();
  return bytes;
}

/// The interface of a group to its world: it ends, and says who is waited for.
class GroupOfWorld {
public:
  virtual ~GroupOfWorld() = default;
  virtual void fail(const FailurePointer& failure) noexcept = 0;
  /// A rank has left: collectives are over, messages between the others are not. Nothing if it is not a
  /// member.
  virtual void leave(int world_rank, const FailurePointer& failure) noexcept = 0;
  /// World ranks that have not entered the collective of this number.
  [[nodiscard]] virtual std::vector<int> absent(std::uint64_t sequence) const = 0;
};

/// Shared state of the ranks of one launch.
class ThreadWorld : public std::enable_shared_from_this<ThreadWorld> {
public:
  ThreadWorld(int ranks, const LaunchOptions& options)
      : ranks_(ranks), options_(bounded(options)), cores_(usable_cores()), balance_(ranks, cores_),
        recorders_(std::make_unique<FlightRecorder[]>(static_cast<std::size_t>(ranks))) {}

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] bool check() const noexcept { return options_.check; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept { return options_.deadline; }
  [[nodiscard]] std::chrono::nanoseconds notice() const noexcept { return options_.notice; }
  [[nodiscard]] FlightRecorder& recorder(int rank) noexcept {
    return recorders_[static_cast<std::size_t>(rank)];
  }
  /// Whether ranks share cores.
  [[nodiscard]] bool crowded() const noexcept { return ranks_ > cores_; }
  /// Before a rank's thread enters a collective.
  void settle(int rank) noexcept {
    if (crowded())
      balance_.settle(rank);
  }
  [[nodiscard]] const CoreBalance& balance() const noexcept { return balance_; }
  /// Of the threads that run the program.
  [[nodiscard]] Patience patience() const noexcept { return Patience::of(ranks_, cores_); }
  /// Of threads beside those that run the program.
  [[nodiscard]] Patience worker_patience() const noexcept { return Patience::of(2 * ranks_, cores_); }

  /// The name at an address that lives as long as the world.
  [[nodiscard]] const char* intern(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (const auto& known : names_)
      if (*known == name)
        return known->c_str();
    return names_.emplace_back(std::make_unique<const std::string>(name))->c_str();
  }

  /// Adds a group; one that comes after the world's end is told so at once.
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

  /// Ends every group, waking all waiters; the first failure is the one that counts.
  void end(const FailurePointer& failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_)
      failure_ = failure;
    for (GroupOfWorld* group : groups_)
      group->fail(failure_);
  }
  [[nodiscard]] FailurePointer failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// A rank's program has ended: the groups that it belongs to cannot go on without it.
  void rank_left(int rank) noexcept {
    auto failure = std::make_shared<Failure>();
    failure->kind = Failure::Kind::left;
    failure->rank = rank;
    failure->sentence = "its program returned while others of the group went on";
    const std::lock_guard lock(mutex_);
    for (GroupOfWorld* group : groups_)
      group->leave(rank, failure);
  }

  /// All ranks' programs have ended: handles that outlive them are of no use.
  void finish() noexcept {
    finished_.store(true, std::memory_order_seq_cst);
    auto failure = std::make_shared<Failure>();
    failure->kind = Failure::Kind::finished;
    end(failure);
  }
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_seq_cst); }

  /// The ranks that wait for one another in a ring, starting from one; empty if there is none.
  [[nodiscard]] std::vector<int> wait_cycle(int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<int> path;
    std::vector<bool> seen(static_cast<std::size_t>(ranks_), false);
    return follow(rank, rank, path, seen) ? path : std::vector<int>();
  }

private:
  /// World ranks for which a rank waits now.
  [[nodiscard]] std::vector<int> waits_for(int rank) {
    FlightRecorder& own = recorder(rank);
    const FlightRecorder::Ticket top = own.newest();
    for (FlightRecorder::Ticket ticket = top; ticket-- > 1 && top - ticket <= FlightRecorder::kept;) {
      const std::optional<FlightEntry> entry = own.entry(ticket);
      if (!entry || !entry->inside)
        continue;
      if (entry->peer >= 0)
        return {entry->peer};
      for (const GroupOfWorld* group : groups_)
        if (group == entry->group_id)
          return group->absent(entry->sequence);
    }
    return {};
  }

  bool follow(int rank, int start, std::vector<int>& path, std::vector<bool>& seen) {
    path.push_back(rank);
    seen[static_cast<std::size_t>(rank)] = true;
    for (const int next : waits_for(rank)) {
      if (next == start && path.size() > 1)
        return true;
      if (!seen[static_cast<std::size_t>(next)] && follow(next, start, path, seen))
        return true;
    }
    path.pop_back();
    return false;
  }

  const int ranks_;
  const LaunchOptions options_;
  const int cores_;
  CoreBalance balance_;
  std::unique_ptr<FlightRecorder[]> recorders_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const std::string>> names_;
  std::vector<GroupOfWorld*> groups_;
  FailurePointer failure_;
  std::atomic<bool> finished_{false};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
