// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ranks that are threads of one process and read one another's buffers directly.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/threads/queue.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// One rank of a group of threads.
///
/// A collective moves every byte once, straight between the ranks' buffers, strided blocks included, and
/// costs two meetings of the ranks (a barrier one). A call that fails ends the group: every rank's wait wakes
/// with a typed error. A started collective runs on a worker thread of the rank and group; messages need
/// none.
class ThreadTransport final : public Transport,
                              public ThreadRanks,
                              public std::enable_shared_from_this<ThreadTransport> {
public:
  ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank)
      : member_(std::move(group), rank), queue_(member_), patience_(member_.world().patience()) {}

  [[nodiscard]] int rank() const noexcept override { return member_.rank(); }
  [[nodiscard]] int size() const noexcept override { return member_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return member_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return member_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return member_.world().deadline(); }

  void run(const CollectiveCall& call) override {
    member_.admit(call);
    if (sends_or_receives(call.operation)) {
      ThreadMessage message;
      member_.post(message, call, false);
      member_.finish(message, patience_);
      return;
    }
    const CallGuard guard(*this, call);
    queue_.drain();
    member_.execute(call, patience_, {.direct = exchange_of(call)});
  }

  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    member_.admit(call);
    if (sends_or_receives(call.operation))
      return pending(queue_.post(call));
    const CallGuard guard(*this, call);
    return pending(queue_.start(call, exchange_of(call)));
  }

  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation where) override {
    const CollectiveCall call = call_of(Operation::split, where);
    member_.admit(call);
    const CallGuard guard(*this, call);
    queue_.drain();
    const GroupPlace own = rule(this->rank());
    int rank = 0;
    const std::shared_ptr<ThreadGroup> group =
        member_.split(call, {own.colour, own.key, &name}, patience_, rank);
    if (!group)
      return nullptr;
    try {
      return std::make_shared<ThreadTransport>(group, rank);
    } catch (...) { // without a handle to the group, this rank would never take part in it
      group->fail(group->world().out_of_memory_on(group->world_rank(rank)));
      throw;
    }
  }

  void abort(const std::string& reason) override { member_.abort(reason); }
  void require_alive(const CollectiveCall& call) override { member_.require_alive(call); }
  [[nodiscard]] std::shared_ptr<ThreadWorld> world() const override {
    return member_.world().shared_from_this();
  }

private:
  /// Two threads in one rank's collectives would silently break their order.
  class CallGuard {
  public:
    CallGuard(ThreadTransport& transport, const CollectiveCall& call) : inside_(transport.inside_) {
      if (inside_.exchange(true, std::memory_order_acquire))
        throw LifecycleError(
            std::string(name_of(call.operation)) +
                ": one rank's collectives on a group must come from one thread at a time (use one communicator per thread, or start them by async())",
            transport.member_.context(call, 0));
    }
    ~CallGuard() { inside_.store(false, std::memory_order_release); }
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;

  private:
    std::atomic<bool>& inside_;
  };

  [[nodiscard]] DirectExchange* exchange_of(const CollectiveCall& call) noexcept {
    return call.operation == Operation::all_to_all ? take_direct_exchange() : nullptr;
  }
  [[nodiscard]] Pending pending(PendingOperation* operation) {
    return Pending(std::shared_ptr<PendingOperation>(shared_from_this(), operation));
  }

  ThreadMember member_;
  ThreadQueue queue_;
  const Patience patience_;
  std::atomic<bool> inside_{false};
};

} // namespace detail

/// @brief One handle per rank of a new world of threads; rank r's is for the thread of rank r, which launch()
/// starts. Reductions add in a fixed order, so equal runs agree bit for bit.
[[nodiscard]] inline std::vector<HostCommunicator> thread_world(int ranks,
                                                                const LaunchOptions& options = {}) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = std::make_shared<detail::ThreadGroup>(
      std::make_shared<detail::ThreadWorld>(ranks, options), members, "world");
  std::vector<HostCommunicator> out;
  for (const int rank : members)
    out.push_back(HostCommunicator(std::make_shared<detail::ThreadTransport>(group, rank)));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
