// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs one program on several ranks: threads of this process, or the processes that mpirun started.
/// Compiles the transports.
///
/// Programs include <shardwright/launch.hpp>, which declares launch().

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/launch_variables.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/threads/process_end.hpp>
#include <shardwright/comm/threads/rank_program.hpp>
#include <shardwright/comm/threads/transport.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/blas_threads.hpp>
#if defined(SHARDWRIGHT_WITH_MPI)
#include <shardwright/comm/mpi/launch.hpp>
#endif

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The outcome of one rank's thread.
struct RankResult {
  int code = 0;
  std::exception_ptr error;
};

/// The failure of a rank, which may be that it is out of memory.
[[nodiscard]] inline FailurePointer failure_of(const ThreadWorld& world, int rank, const std::string& before,
                                               const std::exception_ptr& error) noexcept {
  try {
    auto failure = std::make_shared<Failure>();
    failure->rank = rank;
    failure->sentence = before + text_of(error);
    return failure;
  } catch (...) {
    return world.out_of_memory_on(rank);
  }
}

inline void run_thread_rank(const HostCommunicator& own, const std::function<int(HostCommunicator)>& program,
                            RankResult& result) noexcept {
  const std::shared_ptr<ThreadWorld> world = ThreadRanks::of(own)->world();
  const int rank = own.rank();
  const RankProgram runs(*world, rank);
  try {
    result.code = program(own);
    world->rank_left(rank);
  } catch (...) {
    result.error = std::current_exception();
    world->end(failure_of(*world, rank, {}, result.error));
  }
}

/// The report on ranks that kept running for too long after a failure: the ranks, their last calls, and the
/// errors of those that have ended.
[[nodiscard]] inline std::string frozen_report(ThreadWorld& world, const std::vector<RankResult>& results) {
  std::vector<int> frozen;
  for (int rank = 0; rank < world.ranks(); ++rank)
    if (world.runs(rank))
      frozen.push_back(rank);
  const FailurePointer first = world.failure();
  std::string out =
      "launch: the program must end on every rank within " + time_text(world.grace()) +
      " of the first failure, but it still runs on " + ranks_text(frozen) + ": " +
      whereabouts(frozen, [&world](int rank) { return world.recorder(rank).describe(); }) +
      "; the process ends, because a thread cannot be stopped from outside (attach a debugger to see where it is, or raise LaunchOptions::grace)" +
      "\nshardwright: the first failure: " + cause_of(*first);
  for (int rank = 0; rank < world.ranks(); ++rank)
    if (const RankResult& each = results[static_cast<std::size_t>(rank)];
        !world.runs(rank) && each.error && rank != first->rank)
      out += "\nshardwright: rank " + std::to_string(rank) + " failed: " + text_of(each.error);
  return out;
}

/// Says which rank has failed, as under MPI, unless its error says so.
inline void print_rank(const Failure& failure, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& own) {
    if (own.context().rank < 0)
      write_stderr_line(cause_of(failure));
  } catch (...) {
    write_stderr_line(cause_of(failure));
  }
}

/// The rank whose failure woke `first`, perhaps through others, if it failed too: it may have ended later.
/// The first one if ranks blame each other in a cycle, as their calls in different groups may.
[[nodiscard]] inline int origin_of(const std::vector<RankResult>& results, const int first) {
  int rank = first;
  for (std::size_t woken = 0; woken < results.size(); ++woken)
    try {
      std::rethrow_exception(results[static_cast<std::size_t>(rank)].error);
    } catch (const PeerFailed& error) {
      const auto peer = static_cast<std::size_t>(error.peer());
      if (peer >= results.size() || !results[peer].error)
        return rank;
      rank = error.peer();
    } catch (...) {
      return rank;
    }
  return first;
}

/// Throws the original cause: the error of the rank that failed first.
inline int conclude(const std::vector<RankResult>& results, const FailurePointer& failure) {
  if (failure) {
    if (results[static_cast<std::size_t>(failure->rank)].error) {
      Failure first = *failure;
      first.rank = origin_of(results, failure->rank);
      const std::exception_ptr& error = results[static_cast<std::size_t>(first.rank)].error;
      if (first.rank != failure->rank) {
        first.kind = Failure::Kind::failed;
        first.sentence = text_of(error);
      }
      if (results.size() > 1)
        print_rank(first, error);
      std::rethrow_exception(error);
    }
    for (const RankResult& each : results)
      if (each.error)
        std::rethrow_exception(each.error);
    throw PeerFailed(failure->rank,
                     "launch: the program must run to completion on every rank, but " + cause_of(*failure));
  }
  int code = 0;
  for (const RankResult& each : results)
    code = std::max(code, each.code);
  return code;
}

[[nodiscard]] inline int launch_threads(const LaunchOptions& options,
                                        const std::function<int(HostCommunicator)>& program) {
  constexpr int most_ranks = 1024;
  const int ranks = options.ranks == 0 ? usable_cores() : options.ranks;
  if (ranks < 1 || ranks > most_ranks)
    throw InvalidArgument("launch: ranks must be between 1 and " + std::to_string(most_ranks) +
                          ", but it is " + std::to_string(ranks) + " (0 stands for one per usable core)");
  if (options.deadline <= std::chrono::nanoseconds::zero())
    throw InvalidArgument("launch: the deadline must be positive (five minutes is the default)");
  if (options.blas_threads < 0)
    throw InvalidArgument("launch: blas_threads must not be negative, but it is " +
                          std::to_string(options.blas_threads) + " (0 leaves the BLAS alone)");
  if (ranks > 1 && options.blas_threads > 0)
    require_blas_memory(ranks);
  const BlasThreadLimit blas_threads(ranks > 1 ? options.blas_threads : 0);
  std::vector<HostCommunicator> handles = thread_world(ranks, options);
  const std::shared_ptr<ThreadWorld> world = ThreadRanks::of(handles.front())->world();
  std::vector<RankResult> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  std::exception_ptr unable;
  RankProgram::watch_exit(ranks);
  for (int rank = 0; rank < ranks && !unable; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    world->program_begins(rank);
    try {
      threads.emplace_back(run_thread_rank, std::move(handles[index]), std::cref(program),
                           std::ref(results[index]));
    } catch (...) {
      unable = std::current_exception();
      world->program_ends(rank);
      world->end(failure_of(*world, rank, "its thread could not start: ", unable));
    }
  }
  if (!world->await_programs())
    abort_process([&] { return frozen_report(*world, results); });
  for (std::thread& thread : threads)
    thread.join();
  const FailurePointer failure = world->failure();
  world->finish();
  if (unable)
    std::rethrow_exception(unable);
  return conclude(results, failure);
}

/// Runs `program` on every rank: called by launch(), and compiled into the library shardwright::compiled.
///
/// A template so that translation units may see its definition or only its declaration, and it is one entity
/// in both. Units with MPI and units without it use different specialisations, so that they are not mixed up.
template <class World, bool WithMpi>
int run_ranks(const LaunchOptions& options, const std::function<int(World)>& program) {
  if (const LauncherSet* const launcher = launcher_set()) {
#if defined(SHARDWRIGHT_WITH_MPI)
    static_cast<void>(launcher);
    return launch_mpi(options, program);
#else
    throw ConfigurationMismatch(
        std::string("launch: a program started by mpirun must be built with MPI, but this one is not (") +
        launcher->rank + " and " + launcher->other +
        " are set; configure with SHARDWRIGHT_WITH_MPI, or start it without mpirun)");
#endif
  }
  if (const std::string stray = stray_variables(); !stray.empty()) {
    static const bool told = (write_stderr_line(stray), true);
    static_cast<void>(told);
  }
  return launch_threads(options, program);
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
