// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief launch(): runs one program on several ranks, threads of this process or the processes that mpirun
/// started.
///
/// Compiles the transports, so include it only in the source file that launches. With the CMake target
/// shardwright::compiled, which has them precompiled, it contains declarations only.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>
#if !defined(SHARDWRIGHT_COMPILED)
#include <shardwright/comm/launch.hpp>
#endif

#include <functional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class World, bool WithMpi>
int run_ranks(const LaunchOptions& options, const std::function<int(World)>& program);

#if defined(SHARDWRIGHT_COMPILED)
extern template int
run_ranks<HostCommunicator, with_mpi>(const LaunchOptions& options,
                                      const std::function<int(HostCommunicator)>& program);
#endif

} // namespace detail

/// @brief Runs `program(HostCommunicator world)` on every rank and returns when all have ended.
///
/// Without mpirun the ranks are threads of this process; under mpirun (and with MPI built in) each process is
/// one rank. A program returns nothing or an exit code, of which the largest is returned. If a rank throws,
/// all others are woken with PeerFailed, and the first exception is rethrown from here; a rank that returns
/// while others still need it has the same effect. A thread rank that keeps running for longer than
/// LaunchOptions::grace after that ends the process by abort(), with a report on stderr: a thread cannot be
/// stopped safely, nor left behind with references to objects that the caller owns. A program that calls
/// exit() or quick_exit() while other ranks run ends the process with a report, and with a code other than
/// zero.
/// @throws InvalidArgument for options out of range; ConfigurationMismatch under mpirun without MPI built in.
template <class Program, bool WithMpi = detail::with_mpi>
int launch(const LaunchOptions& options, Program&& program) {
  static_assert(
      std::is_invocable_v<Program&, HostCommunicator>,
      "launch: the program must be callable with a HostCommunicator (write [](shardwright::HostCommunicator world) {...})");
  return detail::run_ranks<HostCommunicator, WithMpi>(options, [&program](HostCommunicator world) -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Program&, HostCommunicator>>) {
      program(std::move(world));
      return 0;
    } else {
      return program(std::move(world));
    }
  });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
