// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One rank of a world without peers: its calls are recorded, and nothing moves.

#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/train/dry_run/call_log.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Far above any address that a process may map, stacks and libraries included.
inline constexpr std::uintptr_t unmapped_begin = std::uintptr_t{1} << 62;
inline constexpr std::uintptr_t unmapped_bytes = std::uintptr_t{1} << 44;

/// An address range of `bytes` bytes that maps to no memory.
[[nodiscard]] inline void* unmapped_memory(std::size_t bytes) noexcept {
  static std::atomic<std::uintptr_t> next{0};
  const std::uintptr_t at = next.fetch_add((bytes + 255) / 256 * 256) % unmapped_bytes;
  return reinterpret_cast<void*>(unmapped_begin + at); // NOLINT(performance-no-int-to-ptr)
}
[[nodiscard]] inline bool is_unmapped(const void* data) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return at >= unmapped_begin && at < 2 * unmapped_bytes + unmapped_begin;
}

/// The shared state of a pretended group.
struct RecordingGroup {
  std::shared_ptr<CallLog> log;
  std::string name;
  std::vector<int> members; ///< In the world.
  int rank = 0;             ///< The rank that makes the calls.
  std::uint64_t id = 0;

  RecordingGroup(std::shared_ptr<CallLog> calls, std::string called, std::vector<int> ranks, int own)
      : log(std::move(calls)), name(std::move(called)), members(std::move(ranks)), rank(own),
        id(log->add_group(name, size(),
                          [this](int each) { return members[static_cast<std::size_t>(each)]; })) {}
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }

  /// Records a call. If its memory is real, this rank's data takes the place of every rank's.
  void run(const CollectiveCall& call, bool started) const {
    log->add(
        call, name, id, size(), [this](int each) { return members[static_cast<std::size_t>(each)]; },
        started);
    if (call.out == nullptr || is_unmapped(call.out))
      return;
    const std::size_t element = size_of(call.element);
    const auto copy = [&](const StridedBlock& from, const StridedBlock& to) {
      copy_elements(static_cast<std::byte*>(call.out), StridedCursor(to),
                    static_cast<const std::byte*>(call.in), StridedCursor(from),
                    std::min(from.count(), to.count()), element, false);
    };
    const StridedBlock whole = contiguous_block(0, call.count);
    switch (call.operation) {
    case Operation::all_gather:
      for (int each = 0; each < size(); ++each)
        copy(whole, call.out_block(each));
      return;
    case Operation::all_to_all:
      for (int each = 0; each < size(); ++each)
        copy(call.in_block(each), call.out_block(each));
      return;
    case Operation::reduce_scatter:
      copy(call.in_block(rank), whole);
      return scale(call);
    case Operation::all_reduce:
      if (call.in != call.out)
        copy(whole, whole);
      return scale(call);
    case Operation::broadcast:
      if (call.in != nullptr && call.in != call.out)
        copy(whole, whole);
      return;
    case Operation::receive:
      std::fill_n(static_cast<std::byte*>(call.out), call.count * element, std::byte{0});
      return;
    default:
      return;
    }
  }

  [[nodiscard]] RecordingGroup part_by(const GroupRule& rule, std::string called) const {
    const GroupPlace own = rule(rank);
    std::vector<std::pair<int, int>> found; // key, rank
    for (int each = 0; own.colour >= 0 && each < size(); ++each)
      if (const GroupPlace place = rule(each); place.colour == own.colour)
        found.emplace_back(place.key, each);
    std::sort(found.begin(), found.end());
    std::vector<int> ranks;
    int place = 0;
    for (const auto& [key, each] : found) {
      if (each == rank)
        place = static_cast<int>(ranks.size());
      ranks.push_back(members[static_cast<std::size_t>(each)]);
    }
    return {log, called.empty() ? name + "/" + std::to_string(own.colour) : std::move(called),
            std::move(ranks), place};
  }

private:
  /// A sum over equal ranks.
  void scale(const CollectiveCall& call) const {
    if (call.reduce_op != ReduceOp::sum)
      return;
    with_element(call.element, [&]<class Number>(std::type_identity<Number>) {
      if constexpr (std::is_same_v<Number, AccumulationElement<Number>> && sizeof(Number) > 1) {
        auto* const out = static_cast<Number*>(call.out);
        for (std::size_t i = 0; i < call.count * parts_of(call.element); ++i)
          out[i] = static_cast<Number>(out[i] * static_cast<Number>(size()));
      }
    });
  }
};

class RecordedOperation final : public PendingOperation {
public:
  [[nodiscard]] bool ready() override { return true; }
  void wait() override {}
  void abandon() noexcept override {}
};

/// A group of which only one rank exists.
class RecordingTransport final : public Transport {
public:
  explicit RecordingTransport(RecordingGroup group) : group_(std::move(group)) {}
  [[nodiscard]] int rank() const noexcept override { return group_.rank; }
  [[nodiscard]] int size() const noexcept override { return group_.size(); }
  [[nodiscard]] int world_rank(int rank) const override {
    return group_.members.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] std::string name() const override { return group_.name; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return std::chrono::minutes(1); }
  void run(const CollectiveCall& call) override { group_.run(call, false); }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    group_.run(call, true);
    return Pending(std::make_shared<RecordedOperation>());
  }
  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation) override {
    if (rule(group_.rank).colour < 0)
      return nullptr;
    return std::make_shared<RecordingTransport>(group_.part_by(rule, std::move(name)));
  }
  void abort(const std::string&) override {}
  void require_alive(const CollectiveCall&) override {}

private:
  RecordingGroup group_;
};

/// The ranks of a pretended host group for the memory of a device.
[[nodiscard]] inline DeviceCommunicator recording_device_group(const HostCommunicator& group,
                                                               std::shared_ptr<CallLog> log) {
  std::vector<int> members(static_cast<std::size_t>(group.size()));
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i] = group.world_rank(static_cast<int>(i));
  return DeviceCommunicator(std::make_shared<RecordingTransport>(
      RecordingGroup(std::move(log), group.name(), std::move(members), group.rank())));
}

} // namespace detail

/// @brief Rank `rank` of a world of `ranks` without the others: calls are recorded in `log` and return
/// immediately.
///
/// The rank's own numbers take the place of everyone's: an all_gather repeats them, a sum multiplies them by
/// the number of ranks. Sums of 16-bit elements and of bytes leave them unchanged. Memory of a counting
/// target is not touched.
/// @throws InvalidArgument for a rank that is not in the world.
[[nodiscard]] inline HostCommunicator recording_world(int ranks, int rank, std::shared_ptr<CallLog> log) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw InvalidArgument(
        "recording_world: the rank must be at least 0 and below the number of ranks, but rank " +
        std::to_string(rank) + " of " + std::to_string(ranks) + " was asked for");
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return HostCommunicator(std::make_shared<detail::RecordingTransport>(
      detail::RecordingGroup(std::move(log), "world", std::move(members), rank)));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
