// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state that all MPI groups of a world share on a rank: progress, the node's shared memory, and
/// failures.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/mpi/call_guard.hpp>
#include <shardwright/comm/mpi/deferred_free.hpp>
#include <shardwright/comm/mpi/end_wait.hpp>
#include <shardwright/comm/mpi/environment.hpp>
#include <shardwright/comm/mpi/launcher.hpp>
#include <shardwright/comm/mpi/node.hpp>
#include <shardwright/comm/mpi/requests.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/wait_graph.hpp>
#include <shardwright/comm/waiting.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The calls of a rank on a group, for its world.
class MpiCalls {
public:
  virtual ~MpiCalls() = default;
  /// Advances those in flight. @return whether anything has moved.
  virtual bool progress() noexcept = 0;
  /// Adds the world ranks for which those in flight wait, if `node` is that of its world.
  virtual void add_waits(const MpiNode& node, std::vector<int>& ranks) = 0;
  /// Whether this rank has yet to begin what the call of another world rank, if it is of this group, needs.
  [[nodiscard]] virtual bool lacks(const MpiLastCall& call, int world_rank) const = 0;
};

class MpiWorld {
public:
  /// Collective over an MPI communicator, which is only read.
  ///
  /// @param ranks_per_node Ranks that share memory as on one node; 0 for all that are on one node. Tests use
  /// it to simulate several nodes on one machine.
  MpiWorld(MPI_Comm comm, const LaunchOptions& options, int ranks_per_node) : options_(bounded(options)) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
    channel_.comm = duplicate(comm);
    control_ = duplicate(comm);
    channel_.world_ranks.resize(static_cast<std::size_t>(size_));
    std::iota(channel_.world_ranks.begin(), channel_.world_ranks.end(), 0);
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    funneled_ = provided <= MPI_THREAD_FUNNELED;
    read_tag_bound();
    share_memory(ranks_per_node);
    int same = MPI_UNEQUAL;
    if (MPI_Comm_compare(comm, MPI_COMM_WORLD, &same) == MPI_SUCCESS &&
        (same == MPI_IDENT || same == MPI_CONGRUENT))
      MpiEnvironment::watch_at_end(members());
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld() {
    // Others may wait for this rank, which will not arrive.
    if (std::uncaught_exceptions() > 0 && !finished_ && ended_by() < 0)
      fail(Failure::Kind::left, "an exception ended its use of the world");
    node_->finish();
    if (MpiEnvironment::active() && ended_by() < 0 && news_.empty() && may_call())
      DeferredFree::leave(control_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const LaunchOptions& options() const noexcept { return options_; }
  [[nodiscard]] const MpiChannel& channel() const noexcept { return channel_; }
  [[nodiscard]] MpiNode& node() noexcept { return *node_; }
  [[nodiscard]] const MpiNode& node() const noexcept { return *node_; }
  /// The ranks of this node, for a wait at the end.
  [[nodiscard]] NodeMembers members() const { return {node_, lonely_, options_.deadline, options_.notice}; }
  [[nodiscard]] MPI_Comm control() const noexcept { return control_; }
  /// Whether only the thread that initialised MPI may call it, and whether this one may.
  [[nodiscard]] bool funneled() const noexcept { return funneled_; }
  [[nodiscard]] bool may_call() const noexcept { return !funneled_ || MpiCallGuard::on_main_thread(); }
  /// Polls of a waiting rank before it yields its core.
  [[nodiscard]] int polls() const noexcept { return polls_; }
  /// Tags below this are for users; as many above it are for the headers of users' messages, and the rest for
  /// collectives.
  [[nodiscard]] int user_tags() const noexcept { return tag_bound_ / 3; }
  [[nodiscard]] int unused_tag() const noexcept { return tag_bound_; } ///< Of no message.

  /// Adds the calls on a group, and removes them.
  void enter(const MpiCalls* group) { groups_.push_back(group); }
  void leave(const MpiCalls* group) noexcept { std::erase(groups_, group); }
  /// The same for groups with calls in flight.
  void attach(MpiCalls* one) { in_progress_.push_back(one); }
  void detach(MpiCalls* one) noexcept { std::erase(in_progress_, one); }

  /// Advances every call in flight on this rank, in all groups. @return whether anything has moved.
  bool progress() noexcept {
    bool moved = false;
    // By index, because a group may finish its last call and detach itself meanwhile.
    for (std::size_t i = 0; i < in_progress_.size(); ++i)
      moved = in_progress_[i]->progress() || moved;
    return moved;
  }

  /// Publishes a call of this rank as its last; `token` identifies it.
  void publish(const CollectiveCall& call, std::uint64_t sequence, int peer, std::uint64_t group_id,
               const std::string& group, const void* token) noexcept {
    last_ = token;
    node_->publish(shown_.record(), shown_.set(call, sequence, peer, group_id, group));
  }
  void publish_end(const void* token) noexcept {
    if (last_ == token)
      node_->publish_end();
  }
  [[nodiscard]] bool is_last(const void* token) const noexcept { return last_ == token; }
  /// Publishes that the last call now waits inside MPI for these ranks, where it is not visible which of them
  /// have arrived; publish_end(nullptr) ends it.
  void publish_wait(Operation operation, const std::vector<int>& world_ranks) noexcept {
    MpiLastCall record = node_->last_call(rank_);
    record.operation = operation;
    record.stage = MpiLastCall::Stage::inside;
    last_ = nullptr;
    node_->publish(record);
    node_->publish_waits({}, world_ranks);
  }

  /// World ranks for which the calls in flight on this rank wait; may contain duplicates.
  [[nodiscard]] const std::vector<int>& waits() {
    waits_.clear();
    for (MpiCalls* const one : in_progress_)
      one->add_waits(*node_, waits_);
    return waits_;
  }
  /// Answers the ranks that wait for this one, which is inside a call and stays there.
  void answer_waits() {
    node_->answer_waits([this](const MpiLastCall& call, int rank) {
      return std::any_of(groups_.begin(), groups_.end(),
                         [&](const MpiCalls* group) { return group->lacks(call, rank); });
    });
  }

  /// Ends the world: this rank caused it. Others learn of it from the node's shared memory, or by a message.
  void fail(Failure::Kind kind, const std::string& sentence) noexcept {
    node_->fail_world(rank_, kind, sentence);
    tell(0, kind, sentence);
  }
  /// Ends one group: this rank caused or detected it.
  void fail_group(std::uint64_t group_id, Failure::Kind kind, const std::string& sentence) noexcept {
    node_->fail_group(rank_, group_id, kind, sentence);
    tell(group_id, kind, sentence);
  }
  /// What ranks of this node are doing: "rank 1: ...; rank 2: ...".
  [[nodiscard]] std::string reports_of(const std::vector<int>& ranks) const {
    return whereabouts(ranks, [this](int rank) { return node_->report(rank); });
  }

  /// The rank that ended the world, or -1.
  [[nodiscard]] int ended_by() const noexcept { return node_->first_failure(); }

  /// launch() has returned: handles that outlive it become invalid.
  void finish() noexcept { finished_ = true; }
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// Whether it is time for the checks that cost more than a poll.
  [[nodiscard]] bool time_to_look_around() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_)
      return false;
    next_look_ = now + std::chrono::milliseconds(5);
    return true;
  }
  /// Checks for failures that no rank on this node reports: messages from other nodes, processes that are
  /// gone.
  void look_around() noexcept {
    for (int waiting = remote_.empty() ? 0 : 1; waiting != 0;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &waiting, &status) != MPI_SUCCESS || waiting == 0)
        break;
      News news{};
      MPI_Recv(&news, static_cast<int>(sizeof news), MPI_BYTE, status.MPI_SOURCE, 0, control_,
               MPI_STATUS_IGNORE);
      news.sentence.back() = '\0';
      if (news.group_id == 0)
        node_->fail_world(status.MPI_SOURCE, news.kind, news.sentence.data());
      else
        node_->fail_group(status.MPI_SOURCE, news.group_id, news.kind, news.sentence.data());
    }
    if (const int gone = node_->dead_rank(); gone >= 0)
      node_->fail_dead(gone);
  }

  static constexpr std::chrono::milliseconds watch_period{100};
  /// Checks for a process that is gone, and reports it; for a thread other than the one that communicates.
  void look_for_dead() noexcept {
    const int gone = ended_by() < 0 ? node_->dead_successor() : -1;
    if (gone < 0)
      return;
    node_->fail_dead(gone);
    print_failure();
  }
  /// Says why the world has ended, unless another rank of this node has.
  void print_failure() noexcept {
    if (ended_by() >= 0 && node_->first_to_tell())
      write_stderr_line(cause_of(node_->world_failure(ended_by())));
  }
  /// Whether ranks run on other nodes.
  [[nodiscard]] bool has_remote() const noexcept { return !remote_.empty(); }

private:
  /// A failure as a message to ranks on other nodes.
  struct News {
    std::uint64_t group_id;
    Failure::Kind kind;
    std::array<char, 1015> sentence;
  };

  void tell(std::uint64_t group_id, Failure::Kind kind, const std::string& sentence) noexcept {
    if (remote_.empty() || !MpiEnvironment::active())
      return;
    // Leaked on purpose: nothing waits for the sends, and failures are rare.
    News* const news = new (std::nothrow) News{group_id, kind, {}};
    if (news == nullptr)
      return;
    copy_sentence(news->sentence, sentence);
    news_.emplace_back(news);
    for (const int peer : remote_) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(news, static_cast<int>(sizeof *news), MPI_BYTE, peer, 0, control_, &request);
      if (request != MPI_REQUEST_NULL)
        MPI_Request_free(&request);
    }
  }

  struct Place {
    std::uint64_t host = 0;
    std::uint64_t name = 0;
  };

  /// A duplicate of an MPI communicator, created within the deadline.
  MPI_Comm duplicate(MPI_Comm comm) {
    DeferredFree::free_some();
    Lent<MPI_Comm> copy(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Comm_idup(comm, &*copy, &request), "MPI_Comm_idup");
    await(request, "MPI_Comm_idup");
    copy.take_back();
    check_mpi(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return *copy;
  }

  void await(MPI_Request& request, const char* function) {
    Waiting waiting(options_.deadline);
    for (int done = 0;;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), function);
      if (done != 0)
        return;
      progress();
      waiting.pause();
      if (node_ && waiting.slow())
        node_->beat(MpiNode::Clock::now());
      if (waiting.expired())
        throw_late(function);
    }
  }
  /// Names the ranks that have not arrived at a call of MPI that says nothing about the others.
  [[noreturn]] void throw_late(const char* function) const {
    std::vector<int> late;
    std::string found;
    if (node_) {
      std::copy_if(here_.begin(), here_.end(), std::back_inserter(late),
                   [&](int rank) { return node_->state(rank) == RankState::unknown; });
      HoldUp hold_up = HoldUpSearch(*node_, rank_, options_.deadline).follow(here_);
      if (!late.empty()) {
        found = ranks_text(late) + " did not open the memory that the ranks of this node share";
      } else if (hold_up.sure) {
        late = std::move(hold_up.ranks);
        found = ranks_text(late) + " did not: " + reports_of(late);
      }
    }
    const std::string siblings = siblings_text(LauncherRanks());
    if (!siblings.empty() && (late.empty() || found.find("process") == std::string::npos))
      found += (found.empty() ? "" : "; ") + siblings;
    throw DeadlineExceeded(late,
                           std::string(function) + ": every rank must arrive within the deadline of " +
                               time_text(options_.deadline) + (found.empty() ? "" : ", but " + found) +
                               " (start all ranks of the job, and look for one that is stuck)",
                           {rank_, "world", "split", 0, {}, {}});
  }

  void read_tag_bound() {
    void* value = nullptr;
    int found = 0;
    check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    if (found != 0)
      tag_bound_ = *static_cast<int*>(value);
  }

  void share_memory(int ranks_per_node) {
    std::uint64_t random = 0;
    if (::getentropy(&random, sizeof random) != 0)
      throw TransportError(
          errno,
          "launch: the system must provide random bytes for the name of a shared-memory segment, but it did not (allow getrandom)");
    Place own{host_id(), random ^ static_cast<std::uint64_t>(::getpid())};
    if (ranks_per_node > 0)
      own.host = mixed(own.host, static_cast<std::uint64_t>(rank_ / ranks_per_node));
    struct Exchange {
      Place own;
      std::vector<Place> all;
    };
    Lent<Exchange> lent(own, std::vector<Place>(static_cast<std::size_t>(size_)));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(&lent->own, 2, MPI_UINT64_T, lent->all.data(), 2, MPI_UINT64_T, channel_.comm,
                             &request),
              "MPI_Iallgather");
    await(request, "MPI_Iallgather");
    lent.take_back();
    const std::vector<Place>& places = lent->all;
    std::vector<std::uint64_t> hosts;
    for (int rank = 0; rank < size_; ++rank) {
      const Place& place = places[static_cast<std::size_t>(rank)];
      (place.host == own.host ? here_ : remote_).push_back(rank);
      if (place.host != own.host)
        hosts.push_back(place.host);
    }
    std::sort(hosts.begin(), hosts.end());
    for (std::size_t i = 0; i < hosts.size(); ++i)
      lonely_ = lonely_ ||
                ((i == 0 || hosts[i - 1] != hosts[i]) && (i + 1 == hosts.size() || hosts[i + 1] != hosts[i]));
    char name[48];
    std::snprintf(name, sizeof name, "/shardwright-%016llx",
                  static_cast<unsigned long long>(places[static_cast<std::size_t>(here_.front())].name));
    const bool creates = here_.front() == rank_;
    const auto open = [&] { return std::make_shared<MpiNode>(name, size_, rank_, here_, creates); };
    const auto meet = [&] {
      check_mpi(MPI_Ibarrier(channel_.comm, &request), "MPI_Ibarrier");
      await(request, "MPI_Ibarrier");
    };
    std::shared_ptr<MpiNode> node = creates ? open() : nullptr;
    try {
      meet();
      node_ = creates ? node : open();
      meet();
      node_->try_to_read();
      meet();
    } catch (...) {
      if (node_ || node)
        (node_ ? node_ : node)->unlink();
      throw;
    }
    node_->watch_processes();
    // Ranks that are bound to separate cores may use one each, so the total number of cores matters.
    const long cores = node_->cores() > 0 ? node_->cores() : ::sysconf(_SC_NPROCESSORS_ONLN);
    polls_ = static_cast<long>(here_.size()) > cores ? Waiting::few_mpi_polls : Waiting::many_polls;
  }

  LaunchOptions options_;
  int rank_ = 0;
  int size_ = 1;
  int tag_bound_ = 32767;
  int polls_ = Waiting::few_mpi_polls;
  MpiChannel channel_;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::shared_ptr<MpiNode> node_;
  std::vector<int> here_;   ///< World ranks on this node.
  std::vector<int> remote_; ///< World ranks on other nodes.
  bool lonely_ = false;     ///< Another node has only one rank.
  /// Shared by all worlds, so that a wait in one advances the calls of the others.
  inline static std::vector<MpiCalls*> in_progress_;
  std::vector<const MpiCalls*> groups_;
  std::vector<std::unique_ptr<News>> news_;
  std::vector<int> waits_; ///< Kept, so that a wait allocates nothing.
  MpiShownCall shown_;
  const void* last_ = nullptr;
  bool finished_ = false;
  bool funneled_ = false;
  std::chrono::steady_clock::time_point next_look_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
