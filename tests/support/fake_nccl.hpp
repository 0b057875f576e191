// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NCCL on the host: non-blocking communicators over FakeRuntime's streams, and their possible
/// failures.

#include "support/fake_runtime.hpp"

#include <shardwright/comm/reduce_kernels.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/device/nccl/channel.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright_test {

/// @brief The failures to inject on one rank, and the calls made there.
struct NcclScript {
  using Result = shardwright::detail::NcclResult;

  std::atomic<int> unique_id{0};       ///< Result of unique_id.
  std::atomic<int> init{0};            ///< Result of init.
  std::atomic<int> group_end{0};       ///< Result of the next group that holds operations.
  std::atomic<int> state{0};           ///< The result that every communicator reports from now on.
  std::atomic<bool> never_ends{false}; ///< finalize does not finish.
  std::atomic<bool> stuck{false};      ///< Groups are never enqueued, as if a peer did not connect.
  std::atomic<int> device{-1};         ///< Number of the GPU; -1: a separate GPU for each rank.
  std::atomic<int> polls{2};           ///< Queries that are answered by in_progress.
  std::atomic<int> aborts_meet{0};     ///< Aborts that must have begun before one of them returns.
  std::atomic<int> operations{0}, reductions{0}, broadcasts{0}, messages{0}, aborts{0}, finalized{0};
};

/// @brief The state that all fakes of a process share.
class FakeNcclWorld {
public:
  static FakeNcclWorld& get() {
    static FakeNcclWorld world;
    return world;
  }
  /// @brief Notes a use that would hang the real NCCL or give wrong numbers.
  void violate(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    violations_ += sentence + "\n";
  }
  [[nodiscard]] std::string violations() {
    const std::lock_guard lock(mutex_);
    return std::exchange(violations_, {});
  }
  void await_aborts(const std::atomic<int>& begun, int wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (begun < wanted && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    if (begun < wanted)
      violate("an abort waits for that of a sibling, which has not begun");
  }
  std::atomic<int> communicators{0}; ///< That live.
  std::atomic<std::uint64_t> identities{0};

  /// @brief The object of an identity, made by `make` at its first use.
  template <class Clique, class Make> std::shared_ptr<Clique> clique(std::uint64_t identity, Make make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<void>& known = cliques_[identity];
    if (!known)
      known = make();
    return std::static_pointer_cast<Clique>(known);
  }

private:
  std::mutex mutex_;
  std::string violations_;
  std::map<std::uint64_t, std::shared_ptr<void>> cliques_;
};

namespace fake_nccl {

using Result = shardwright::detail::NcclResult;
using Stream = FakeRuntime::Stream;

enum class Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast, send, receive };

struct Operation {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  shardwright::ElementType type;
  shardwright::ReduceOp op;
  int root; ///< Or peer.
  bool done = false;
};

/// The ranks that share a communicator.
struct Clique {
  explicit Clique(int of_ranks) : ranks(of_ranks) {}
  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  int connected = 0;
  std::map<std::uint64_t, std::vector<Operation*>> meetings;             ///< By the number of the collective.
  std::map<std::pair<int, int>, std::deque<Operation*>> sends, receives; ///< By (from, to).
};

/// @brief One rank of a fake communicator.
class Comm {
public:
  Comm(std::shared_ptr<Clique> clique, int rank, const char* name, std::shared_ptr<NcclScript> script)
      : clique_(std::move(clique)), rank_(rank), name_(name), script_(std::move(script)),
        left_(script_->polls) {
    ++FakeNcclWorld::get().communicators;
    const std::lock_guard lock(clique_->mutex);
    ++clique_->joined;
  }
  ~Comm() { --FakeNcclWorld::get().communicators; }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  Result state() {
    if (*name_ == '\0') // the real one keeps the pointer too
      FakeNcclWorld::get().violate("a communicator without a name");
    if (script_->state != 0)
      return static_cast<Result>(script_->state.load());
    if (phase_ == Phase::idle)
      return Result::success;
    if (left_-- > 0)
      return Result::in_progress;
    const std::lock_guard lock(clique_->mutex);
    switch (phase_) {
    case Phase::forming:
      if (clique_->joined < clique_->ranks)
        return Result::in_progress;
      break;
    case Phase::issuing:
      if (script_->stuck || (!is_exchange() && clique_->connected < clique_->ranks))
        return Result::in_progress;
      enqueue();
      break;
    case Phase::finalizing:
      if (kernels_ > 0 || script_->never_ends)
        return Result::in_progress;
      finalized_ = true;
      break;
    case Phase::idle:
      break;
    }
    phase_ = Phase::idle;
    return Result::success;
  }

  Result issue(std::vector<Operation> operations, Stream stream) {
    if (phase_ != Phase::idle) {
      FakeNcclWorld::get().violate("a group before the one before it was enqueued");
      return Result::invalid_argument;
    }
    operations_ = std::make_shared<std::vector<Operation>>(std::move(operations));
    stream_ = std::move(stream);
    phase_ = Phase::issuing;
    left_ = script_->polls;
    const std::lock_guard lock(clique_->mutex);
    if (!is_exchange() && !std::exchange(connected_, true))
      ++clique_->connected;
    return Result::in_progress;
  }

  Result finalize() {
    if (phase_ != Phase::idle)
      FakeNcclWorld::get().violate("finalized while something was under way");
    phase_ = Phase::finalizing;
    left_ = script_->polls;
    return Result::in_progress;
  }
  [[nodiscard]] bool finalized() const { return finalized_; }

  void abort() {
    const std::lock_guard lock(clique_->mutex);
    aborted_ = true;
    clique_->changed.notify_all();
  }
  void await_kernels() {
    std::unique_lock lock(clique_->mutex);
    if (!clique_->changed.wait_for(lock, std::chrono::seconds(20), [this] { return kernels_ == 0; }))
      FakeNcclWorld::get().violate("a kernel did not end after its communicator was aborted");
  }

private:
  enum class Phase { forming, idle, issuing, finalizing };

  /// Whether only messages are issued, which need their peers alone.
  [[nodiscard]] bool is_exchange() const {
    return std::all_of(operations_->begin(), operations_->end(), [](const Operation& each) {
      return each.kind == Kind::send || each.kind == Kind::receive;
    });
  }
  /// Under the mutex.
  void enqueue() {
    ++kernels_;
    stream_.run([this, operations = std::exchange(operations_, nullptr)] { kernel(*operations); });
    stream_ = {};
  }

  void kernel(std::vector<Operation>& operations) {
    std::unique_lock lock(clique_->mutex);
    for (Operation& each : operations)
      if (!aborted_)
        post(each);
    const auto done = [&] {
      return aborted_ || std::all_of(operations.begin(), operations.end(),
                                     [](const Operation& each) { return each.done; });
    };
    clique_->changed.wait(lock, done);
    for (Operation& each : operations)
      if (!each.done)
        withdraw(each);
    --kernels_;
    clique_->changed.notify_all();
  }

  void post(Operation& operation) {
    if (operation.kind == Kind::send || operation.kind == Kind::receive) {
      const bool sends = operation.kind == Kind::send;
      const std::pair<int, int> key =
          sends ? std::pair(rank_, operation.root) : std::pair(operation.root, rank_);
      (sends ? clique_->sends : clique_->receives)[key].push_back(&operation);
      carry(key);
      return;
    }
    auto& meeting = clique_->meetings[++collectives_];
    if (meeting.empty())
      meeting.resize(static_cast<std::size_t>(clique_->ranks));
    meeting[static_cast<std::size_t>(rank_)] = &operation;
    if (std::find(meeting.begin(), meeting.end(), nullptr) != meeting.end())
      return;
    combine(meeting);
    for (Operation* each : meeting)
      each->done = true;
    clique_->meetings.erase(collectives_);
    clique_->changed.notify_all();
  }
  void withdraw(Operation& operation) {
    for (auto* side : {&clique_->sends, &clique_->receives})
      for (auto& [key, queue] : *side)
        std::erase(queue, &operation);
    for (auto& [number, meeting] : clique_->meetings)
      std::replace(meeting.begin(), meeting.end(), &operation, static_cast<Operation*>(nullptr));
  }

  void carry(const std::pair<int, int>& key) {
    auto& sends = clique_->sends[key];
    auto& receives = clique_->receives[key];
    while (!sends.empty() && !receives.empty()) {
      Operation& send = *sends.front();
      Operation& receive = *receives.front();
      sends.pop_front();
      receives.pop_front();
      if (send.count != receive.count || send.type != receive.type)
        FakeNcclWorld::get().violate("a message of another size or type than its receive");
      else
        std::memcpy(receive.out, send.in, send.count * shardwright::size_of(send.type));
      send.done = receive.done = true;
      clique_->changed.notify_all();
    }
  }

  void combine(const std::vector<Operation*>& all) {
    const Operation& own = *all[static_cast<std::size_t>(rank_)];
    for (const Operation* each : all)
      if (each->kind != own.kind || each->count != own.count || each->type != own.type ||
          each->op != own.op || each->root != own.root)
        return FakeNcclWorld::get().violate("ranks met in different collectives");
    const std::size_t bytes = own.count * shardwright::size_of(own.type);
    const auto place = [&](std::size_t rank) { return rank * bytes; };
    if (own.kind == Kind::broadcast) {
      const void* const from = all[static_cast<std::size_t>(own.root)]->in;
      for (const Operation* each : all)
        std::memmove(each->out, from, bytes);
    } else if (own.kind == Kind::all_gather) {
      for (const Operation* each : all)
        for (std::size_t rank = 0; rank < all.size(); ++rank)
          std::memmove(static_cast<std::byte*>(each->out) + place(rank), all[rank]->in, bytes);
    } else {
      for (std::size_t part = 0; part < (own.kind == Kind::reduce_scatter ? all.size() : 1); ++part) {
        // All parts are read before any is written, because the output of one rank may overlap its input.
        results_.resize(all.size());
        std::vector<const void*> ins;
        for (const Operation* each : all)
          ins.push_back(static_cast<const std::byte*>(each->in) + place(part));
        results_[part].assign(bytes, std::byte{});
        void* out = results_[part].data();
        const int divisor = own.op == shardwright::ReduceOp::average ? clique_->ranks : 1;
        shardwright::detail::reduce_run(own.type, own.op,
                                        {ins.data(), clique_->ranks, &out, 1, own.count, divisor, false});
      }
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (own.kind != Kind::reduce || static_cast<int>(rank) == own.root)
          std::memcpy(all[rank]->out, results_[own.kind == Kind::reduce_scatter ? rank : 0].data(), bytes);
    }
  }

  std::shared_ptr<Clique> clique_;
  int rank_;
  const char* name_;
  std::shared_ptr<NcclScript> script_;
  int left_;
  Phase phase_ = Phase::forming;
  bool connected_ = false;
  bool finalized_ = false;
  std::shared_ptr<std::vector<Operation>> operations_;
  Stream stream_;
  // Under the mutex of the clique.
  bool aborted_ = false;
  int kernels_ = 0;
  std::uint64_t collectives_ = 0;
  std::vector<std::vector<std::byte>> results_;
};

} // namespace fake_nccl

/// @brief The functions of NcclApi. Copies belong to the same rank.
class FakeNccl {
public:
  using Result = fake_nccl::Result;
  using ElementType = shardwright::ElementType;
  using ReduceOp = shardwright::ReduceOp;
  using Stream = fake_nccl::Stream;
  using Device = std::array<unsigned char, 16>;
  struct UniqueId {
    std::uint64_t identity = 0;
    std::uint64_t padding[15] = {};
  };
  using Comm = fake_nccl::Comm;
  using Communicator = Comm*;

  explicit FakeNccl(std::shared_ptr<NcclScript> script = std::make_shared<NcclScript>())
      : script_(std::move(script)) {}

  [[nodiscard]] Result unique_id(UniqueId& id) {
    id.identity = ++FakeNcclWorld::get().identities;
    return result(script_->unique_id);
  }
  [[nodiscard]] Result init(Communicator& out, int ranks, const UniqueId& id, int rank, const char* name) {
    if (script_->init != 0)
      return result(script_->init);
    auto clique =
        FakeNcclWorld::get().clique<Clique>(id.identity, [&] { return std::make_shared<Clique>(ranks); });
    out = new Comm(std::move(clique), rank, name, script_);
    return Result::in_progress;
  }
  [[nodiscard]] Result state(Communicator comm) { return comm->state(); }
  [[nodiscard]] Result finalize(Communicator comm) {
    ++script_->finalized;
    return comm->finalize();
  }
  [[nodiscard]] Result destroy(Communicator comm) {
    if (!comm->finalized())
      FakeNcclWorld::get().violate("destroyed before it was finalized");
    delete comm;
    return Result::success;
  }
  [[nodiscard]] Result abort(Communicator comm) {
    ++script_->aborts;
    comm->abort();
    if (script_->aborts_meet > 0) // its job ends with the kernels of siblings
      FakeNcclWorld::get().await_aborts(script_->aborts, script_->aborts_meet);
    group().aborted.push_back(comm);
    if (group().depth == 0)
      reclaim();
    return Result::success;
  }
  [[nodiscard]] Result group_start() {
    ++group().depth;
    return Result::success;
  }
  [[nodiscard]] Result group_end() {
    if (--group().depth > 0)
      return Result::success;
    reclaim();
    Comm* const comm = std::exchange(group().comm, nullptr);
    if (comm == nullptr)
      return Result::success;
    std::vector<Operation> operations = std::move(group().operations);
    group().operations.clear();
    if (script_->group_end != 0)
      return result(script_->group_end.exchange(0));
    return comm->issue(std::move(operations), group().stream);
  }

  [[nodiscard]] Result all_reduce(const void* in, void* out, std::size_t count, ElementType type, ReduceOp op,
                                  Communicator comm, Stream stream) {
    ++script_->reductions;
    return add({Kind::all_reduce, in, out, count, type, op, 0}, comm, std::move(stream));
  }
  [[nodiscard]] Result reduce(const void* in, void* out, std::size_t count, ElementType type, ReduceOp op,
                              int root, Communicator comm, Stream stream) {
    ++script_->reductions;
    return add({Kind::reduce, in, out, count, type, op, root}, comm, std::move(stream));
  }
  [[nodiscard]] Result reduce_scatter(const void* in, void* out, std::size_t count, ElementType type,
                                      ReduceOp op, Communicator comm, Stream stream) {
    ++script_->reductions;
    return add({Kind::reduce_scatter, in, out, count, type, op, 0}, comm, std::move(stream));
  }
  [[nodiscard]] Result all_gather(const void* in, void* out, std::size_t count, ElementType type,
                                  Communicator comm, Stream stream) {
    return add({Kind::all_gather, in, out, count, type, {}, 0}, comm, std::move(stream));
  }
  [[nodiscard]] Result broadcast(const void* in, void* out, std::size_t count, ElementType type, int root,
                                 Communicator comm, Stream stream) {
    ++script_->broadcasts;
    return add({Kind::broadcast, in, out, count, type, {}, root}, comm, std::move(stream));
  }
  [[nodiscard]] Result send(const void* in, std::size_t count, ElementType type, int peer, Communicator comm,
                            Stream stream) {
    ++script_->messages;
    return add({Kind::send, in, nullptr, count, type, {}, peer}, comm, std::move(stream));
  }
  [[nodiscard]] Result receive(void* out, std::size_t count, ElementType type, int peer, Communicator comm,
                               Stream stream) {
    ++script_->messages;
    return add({Kind::receive, nullptr, out, count, type, {}, peer}, comm, std::move(stream));
  }
  [[nodiscard]] std::string text(Result code, Communicator) const {
    return "the fake's result " + std::to_string(static_cast<int>(code));
  }
  [[nodiscard]] Device device() const {
    Device out{};
    const std::uint64_t number = script_->device >= 0 ? static_cast<std::uint64_t>(script_->device.load())
                                                      : (1U << 20U) + ++FakeNcclWorld::get().identities;
    std::memcpy(out.data(), &number, sizeof number);
    return out;
  }

private:
  using Kind = fake_nccl::Kind;
  using Operation = fake_nccl::Operation;
  using Clique = fake_nccl::Clique;
  struct Group {
    int depth = 0;
    Comm* comm = nullptr;
    Stream stream;
    std::vector<Operation> operations;
    std::vector<Comm*> aborted;
  };

  static Result result(int code) { return static_cast<Result>(code); }
  static Group& group() {
    thread_local Group own;
    return own;
  }
  Result add(Operation operation, Comm* comm, Stream stream) {
    ++script_->operations;
    Group& own = group();
    if (own.depth == 0 || (own.comm != nullptr && own.comm != comm))
      FakeNcclWorld::get().violate("an operation outside a group, or two communicators in one");
    own.comm = comm;
    own.stream = std::move(stream);
    own.operations.push_back(operation);
    return Result::success;
  }
  static void reclaim() {
    for (Comm* comm : std::exchange(group().aborted, {})) {
      comm->await_kernels();
      delete comm;
    }
  }

  std::shared_ptr<NcclScript> script_;
};

} // namespace shardwright_test
