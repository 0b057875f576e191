// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief launch() for tests, compiled once for each test runner: the transports take seconds to compile.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/launch_options.hpp>

#include <functional>

namespace shardwright_test {

using RankProgram = std::function<void(shardwright::HostCommunicator)>;

/// @brief launch(): on thread ranks, or under mpirun on its processes.
void launch_ranks(const shardwright::LaunchOptions& options, const RankProgram& program);

/// @brief Always on thread ranks, under mpirun too.
void launch_thread_ranks(const shardwright::LaunchOptions& options, const RankProgram& program);

} // namespace shardwright_test
