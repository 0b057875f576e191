// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Communication in device memory between ranks that are threads of one process, on one device or on
/// several that reach one another's memory.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/device/peers/group.hpp>
#include <shardwright/device/peers/member.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The transport of thread ranks on one device, or on several with peer access: kernels on streams of
/// the group, ordered with the ranks' streams by events.
///
/// A collective is one meeting of the ranks on the host and one launch on each device, by the rank that comes
/// last, for all of them; a message is copied by a launch of the side that comes second. Reductions combine
/// in the order of the host, to the bit, wherever the ranks are. What each collective moves stands in
/// peer_kernels.hpp. Waiting, deadlines and failures are those of thread ranks. A rank that is alone copies
/// on its own stream, and its started calls are ready at once. A steady sequence of calls allocates nothing.
/// CallTimes are noted by the rank's device as it comes to its part, after `run` and `wait` have returned.
template <PeerRuntime Runtime>
class PeerTransport final : public DeviceTransport,
                            public std::enable_shared_from_this<PeerTransport<Runtime>> {
  using Stream = typename Runtime::Stream;

public:
  /// @brief Collective over `group`, whose ranks are threads of this process; each gives the runtime of its
  /// device, and its stream there. Devices get access to one another's memory, for the rest of the program.
  /// @throws ConfigurationMismatch where the ranks are processes, or a device cannot reach another's memory.
  [[nodiscard]] static std::shared_ptr<PeerTransport> connect(HostCommunicator group, Runtime runtime,
                                                              Stream stream) {
    std::shared_ptr<detail::ThreadWorld> world = group.thread_world();
    if (group.size() == 1) {
      if (!world) // a process: nobody else is in its world
        world = std::make_shared<detail::ThreadWorld>(1, LaunchOptions{.deadline = group.deadline()});
      auto own = make_group(group, std::move(world), std::vector<Runtime>{std::move(runtime)});
      return std::make_shared<PeerTransport>(std::move(group), std::move(own), std::move(stream));
    }
    if (!world)
      throw ConfigurationMismatch(
          "connect: ranks that share a device through peer kernels must be threads of one process, but those of this group are processes (use NCCL, or start the ranks as threads)",
          {group.world_rank(), group.name(), "connect", 0, {}, {}});
    const std::vector<Runtime> runtimes = gather(group, runtime);
    reach_devices(group, runtime, runtimes);
    std::shared_ptr<detail::PeerGroup<Runtime>> shared;
    if (group.rank() == 0)
      shared = make_group(group, std::move(world), runtimes);
    std::array<std::uint64_t, 1> address{reinterpret_cast<std::uintptr_t>(&shared)};
    group.broadcast(address, 0);
    auto own = *reinterpret_cast<const std::shared_ptr<detail::PeerGroup<Runtime>>*>(
        static_cast<std::uintptr_t>(address[0]));
    auto out = std::make_shared<PeerTransport>(group, std::move(own), std::move(stream));
    group.barrier(); // the first rank's pointer has been read by all
    return out;
  }

  PeerTransport(HostCommunicator group, std::shared_ptr<detail::PeerGroup<Runtime>> shared, Stream stream)
      : group_(std::move(group)), stream_(stream),
        member_(std::move(shared), group_.rank(), std::move(stream)) {}

  [[nodiscard]] int rank() const noexcept override { return member_.rank(); }
  [[nodiscard]] int size() const noexcept override { return member_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return member_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return member_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return group_.deadline(); }
  void run(const CollectiveCall& call) override { member_.run(call); }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    return Pending(std::shared_ptr<PendingOperation>(this->shared_from_this(), member_.start(call)));
  }
  [[nodiscard]] std::shared_ptr<DeviceTransport> split(int colour, int key, std::string name,
                                                       SourceLocation where) override {
    HostCommunicator part = group_.split(colour, key, std::move(name), where);
    return part.valid() ? connect(std::move(part), runtime(), stream_) : nullptr;
  }
  void abort(const std::string& reason) override { member_.abort(reason); }
  /// Kernels of a group end by themselves, whatever becomes of its ranks.
  void await_stream(SourceLocation) override {
    if (!stream_event_)
      stream_event_.emplace(runtime().make_event());
    runtime().record(*stream_event_, stream_);
    static_cast<void>(detail::await_device([this] { return runtime().done(*stream_event_); }));
  }
  void require_alive(const CollectiveCall& call) override { member_.require_alive(call); }
  [[nodiscard]] std::shared_ptr<detail::ThreadWorld> thread_world() const override {
    return group_.thread_world();
  }

private:
  [[nodiscard]] Runtime& runtime() const noexcept { return member_.group().runtime(member_.rank()); }

  /// The runtimes of all ranks.
  [[nodiscard]] static std::vector<Runtime> gather(HostCommunicator& group, const Runtime& own) {
    const std::array<std::uint64_t, 1> address{reinterpret_cast<std::uintptr_t>(&own)};
    std::vector<std::uint64_t> addresses(static_cast<std::size_t>(group.size()));
    group.all_gather(address, addresses);
    std::vector<Runtime> out;
    for (const std::uint64_t rank : addresses)
      out.push_back(*reinterpret_cast<const Runtime*>(static_cast<std::uintptr_t>(rank)));
    group.barrier(); // all have read
    return out;
  }

  /// Gives the rank's device access to the memory of the others; all ranks learn of one that cannot.
  static void reach_devices(HostCommunicator& group, Runtime& own, const std::vector<Runtime>& all) {
    const auto differs = [&](const Runtime& one) { return one.device() != all.front().device(); };
    if (std::none_of(all.begin(), all.end(), differs))
      return;
    std::array<int, 1> unreached{-1};
    for (int rank = 0; rank < group.size() && unreached[0] < 0; ++rank)
      if (const int device = all[static_cast<std::size_t>(rank)].device();
          device != own.device() && !own.reach(device))
        unreached[0] = rank;
    std::vector<int> of_ranks(all.size());
    group.all_gather(unreached, of_ranks);
    const auto place = [&](int rank) {
      return "device " + std::to_string(all[static_cast<std::size_t>(rank)].device()) + " (rank " +
             std::to_string(group.world_rank(rank)) + ")";
    };
    for (int rank = 0; rank < group.size(); ++rank)
      if (const int other = of_ranks[static_cast<std::size_t>(rank)]; other >= 0)
        throw ConfigurationMismatch(
            "connect: devices of thread ranks must reach one another's memory, but " + place(rank) +
                " has no peer access to " + place(other) +
                " (start a process for each device, which NCCL connects, or give all threads one device)",
            {group.world_rank(), group.name(), "connect", 0, {}, {}});
  }

  [[nodiscard]] static std::shared_ptr<detail::PeerGroup<Runtime>>
  make_group(const HostCommunicator& group, std::shared_ptr<detail::ThreadWorld> world,
             const std::vector<Runtime>& runtimes) {
    std::vector<int> members;
    for (int rank = 0; rank < group.size(); ++rank)
      members.push_back(group.world_rank(rank));
    return std::make_shared<detail::PeerGroup<Runtime>>(std::move(world), std::move(members), group.name(),
                                                        runtimes);
  }

  HostCommunicator group_;
  Stream stream_;
  detail::PeerMember<Runtime> member_;
  std::optional<typename Runtime::Event> stream_event_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
