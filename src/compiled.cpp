// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: the transports, compiled once for all units that launch ranks.
#include <shardwright/comm/launch.hpp>

template int shardwright::detail::run_ranks<shardwright::HostCommunicator, shardwright::detail::with_mpi>(
    const LaunchOptions& options, const std::function<int(HostCommunicator)>& program);
