// SPDX-License-Identifier: Apache-2.0
#include "support/launch_ranks.hpp"

#include <shardwright/comm/launch.hpp> // threads without MPI, which a compiled launch() does not declare
#include <shardwright/launch.hpp>

#include <utility>

namespace shardwright_test {

void launch_ranks(const shardwright::LaunchOptions& options, const RankProgram& program) {
  shardwright::launch(options, program);
}

void launch_thread_ranks(const shardwright::LaunchOptions& options, const RankProgram& program) {
  static_cast<void>(shardwright::detail::launch_threads(options, [&](shardwright::HostCommunicator world) {
    program(std::move(world));
    return 0;
  }));
}

} // namespace shardwright_test
