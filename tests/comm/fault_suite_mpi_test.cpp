// SPDX-License-Identifier: Apache-2.0
#include "comm/fault_suite.hpp"
#include "support/catch.hpp"

#include <shardwright/launch.hpp>

#include <chrono>

namespace sw = shardwright;

namespace {

struct MpiPlace : communicator_suite::HostPlace {
  using HostPlace::HostPlace;
  using hears_of_no_handles = void;
};

} // namespace

TEST_CASE("MPI ranks pass the fault suite", "[comm][faults]") {
  // On one node, and with messages between nodes.
  const int ranks_per_node = GENERATE(0, 1);
  sw::HostCommunicator meeting = sw::mpi_world({.deadline = std::chrono::seconds(60)});
  if (meeting.size() == 1)
    return;
  for (const auto& fault : fault_suite::faults<MpiPlace>()) {
    if (ranks_per_node == 1 && fault.at_deadline)
      continue;        // of a rank on another node, a report knows no last operation
    meeting.barrier(); // some ranks end a fault late
    INFO(fault.name);
    const sw::LaunchOptions options{.deadline = fault.at_deadline
                                                    ? std::chrono::nanoseconds(std::chrono::milliseconds(500))
                                                    : std::chrono::minutes(1)};
    fault_suite::Scene<MpiPlace> scene(
        sw::HostCommunicator(sw::detail::make_mpi_transport(MPI_COMM_WORLD, options, ranks_per_node)),
        [&] { meeting.barrier(); }, nullptr, [&] { meeting.barrier(); });
    CHECK(fault_suite::try_fault(fault, scene) == "");
  }
}
