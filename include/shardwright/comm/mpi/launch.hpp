// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a program on the processes that mpirun started, and ends all of them when one fails.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/mpi/launcher.hpp>
#include <shardwright/comm/mpi/transport.hpp>
#include <shardwright/comm/stderr_line.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// MPI as managed by launch(): initialised by the first launch, finalised when the process exits normally.
class MpiProcess {
public:
  /// Initialises MPI unless the program has done so itself.
  static void start(const LaunchOptions& options) {
    static std::unique_ptr<MpiEnvironment> environment;
    static const AtExit at_exit;
    if (!MpiEnvironment::active())
      environment = std::make_unique<MpiEnvironment>(options.deadline, options.start_deadline);
  }

  /// Marks a running program; exit() inside it is a failure.
  class Running {
  public:
    explicit Running(MpiWorld& world) { world_ = &world; }
    ~Running() { world_ = nullptr; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
  };
  [[nodiscard]] static bool running() noexcept { return world_ != nullptr; }

  /// Time that a rank has from the exception that launch() throws until the job ends.
  static constexpr std::chrono::seconds grace{3};

  /// Waits a moment for the other ranks to learn why the job ends.
  static void let_others_learn(MpiWorld& world) noexcept {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    const auto limit = std::min<std::chrono::nanoseconds>(world.options().deadline, std::chrono::seconds(1));
    // Nothing is known about ranks on other nodes; the message to them is sent meanwhile.
    const auto least = world.has_remote() ? std::chrono::milliseconds(100) : std::chrono::milliseconds(0);
    while (clock::now() < begin + least ||
           (world.node().others_running() > 0 && clock::now() < begin + limit)) {
      world.progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// Ends the job, whatever the other ranks do.
  [[noreturn]] static void end() noexcept {
    std::fflush(nullptr);
    if (MpiEnvironment::active())
      MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }

  /// Ends the job in a few seconds, or earlier if this process ends.
  static void end_soon() noexcept {
    failed_ = true;
    try {
      std::thread([] {
        std::this_thread::sleep_for(grace);
        end();
      }).detach();
    } catch (...) {
      end();
    }
  }
  /// Whether a launch of several ranks has failed, so that the job is about to end.
  [[nodiscard]] static bool failed() noexcept { return failed_; }

private:
  /// Constructed after the environment, so it runs before MPI is finalised.
  struct AtExit {
    AtExit() = default;
    AtExit(const AtExit&) = delete;
    AtExit& operator=(const AtExit&) = delete;
    ~AtExit() {
      if (process_ != ::getpid())
        return; // a child that a rank has forked
      if (failed_)
        end();
      if (world_ == nullptr)
        return;
      world_->fail(Failure::Kind::left, "it called exit() inside the program of launch()");
      world_->print_failure();
      let_others_learn(*world_);
      end();
    }

  private:
    pid_t process_ = ::getpid();
  };

  inline static MpiWorld* world_ = nullptr;
  inline static bool failed_ = false;
};

/// Tells the other ranks of a failure. Returns on the rank that failed first, which then has a few seconds
/// until the job ends; ranks that fail as a consequence stay here until they are ended.
inline void end_mpi_job(MpiWorld& world, const std::string& sentence) noexcept {
  const int first = world.ended_by();
  if (first < 0 || first == world.rank())
    world.fail(Failure::Kind::failed, sentence);
  // Two ranks may fail at the same time: one of them is the first.
  if (world.ended_by() == world.rank()) {
    world.print_failure();
    MpiProcess::let_others_learn(world);
    return MpiProcess::end_soon();
  }
  world.node().finish();
  if (world.node().state(world.ended_by()) == RankState::dead)
    world.print_failure();
  // The first rank ends this one; if it is gone, this one ends itself.
  std::this_thread::sleep_for(MpiProcess::grace + std::chrono::seconds(1));
  world.print_failure();
  MpiProcess::end();
}

/// Waits until the program of every rank has returned, as long as the processes of the running ones are
/// alive.
/// @return the largest exit code.
inline int join_mpi_ranks(MpiWorld& world, int code) {
  world.node().finish();
  struct Codes {
    int own;
    int largest;
  };
  Lent<Codes> codes(code, code);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(&codes->own, &codes->largest, 1, MPI_INT, MPI_MAX, world.control(), &request),
            "MPI_Iallreduce");
  MpiEndWait others(world.members(), "at the end of launch()");
  Waiting waiting(world.options().deadline);
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) {
      codes.take_back();
      return codes->largest;
    }
    if (world.progress())
      waiting.reset();
    waiting.pause();
    if (!waiting.slow() || !world.time_to_look_around())
      continue;
    world.look_around();
    if (const int rank = world.ended_by(); rank >= 0)
      throw PeerFailed(rank, "launch: the program must run to completion on every rank, but " +
                                 cause_of(world.node().world_failure(rank)));
    const auto verdict =
        others.look([&](int rank) { return world.node().state(rank) != RankState::running; });
    if (verdict)
      throw DeadlineExceeded(verdict->ranks,
                             "launch: the program must end on every rank within " +
                                 time_text(world.options().deadline) +
                                 " of this one's end unless its process is seen to be alive, but " +
                                 verdict->found + " (raise LaunchOptions::deadline if that is right)");
  }
}

/// The world of a launch. If it cannot be created, the job ends: otherwise the others might wait for this
/// rank forever.
inline std::shared_ptr<MpiTransport> make_launch_world(const LaunchOptions& options) {
  try {
    return make_mpi_transport(MPI_COMM_WORLD, options, ranks_per_node());
  } catch (const std::exception& error) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 1) {
      // The first rank to report ends those that would say the same.
      std::this_thread::sleep_for(std::chrono::milliseconds(300) * std::min(rank, 8));
      write_stderr_line("rank " + std::to_string(rank) + " failed: " + error.what());
      MpiProcess::end_soon();
    }
    throw;
  }
}

/// Runs `program(world)` on this process as one rank of the job.
///
/// A program that throws ends the whole job with a nonzero exit code: the rank that threw first prints the
/// reason to stderr and throws its exception from here; the others are woken with PeerFailed and then ended.
/// The job ends when that rank's process does, at the latest after MpiProcess::grace.
/// @throws what the program threw; LifecycleError inside another launch or after MPI was finalised;
/// ConfigurationMismatch for options or variables that contradict what mpirun started; both before anything
/// else happens.
inline int launch_mpi(const LaunchOptions& options, const std::function<int(HostCommunicator)>& program) {
  if (MpiProcess::running())
    throw LifecycleError(
        "launch: a program must not launch another one under mpirun (call launch() from main)");
  if (MpiProcess::failed())
    throw LifecycleError(
        "launch: a job in which a rank has failed must not launch again (return from main; the other ranks are being ended)");
  if (options.deadline <= std::chrono::nanoseconds::zero())
    throw InvalidArgument("launch: the deadline must be positive (five minutes is the default)");
  if (options.start_deadline <= std::chrono::nanoseconds::zero())
    throw InvalidArgument("launch: the start deadline must be positive (two minutes is the default)");
  check_launch_environment(options);
  MpiProcess::start(options);
  int rank = 0, ranks = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  check_started(rank, ranks);
  const auto transport = make_launch_world(options);
  MpiWorld& world = transport->world();
  const MpiProcess::Running running(world);
  const Watch watch(MpiWorld::watch_period, [&world] {
    world.look_for_dead();
    return world.ended_by() < 0;
  });
  try {
    const int code = program(HostCommunicator(transport));
    const int largest = join_mpi_ranks(world, code);
    world.finish();
    return largest;
  } catch (...) {
    if (world.size() == 1)
      world.finish();
    else
      end_mpi_job(world, text_of(std::current_exception()));
    throw;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
