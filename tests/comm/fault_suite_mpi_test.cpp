// SPDX-License-Identifier: Apache-2.0
#include "comm/fault_suite.hpp"
#include "support/catch.hpp"

#include <shardwright/launch.hpp>

#include <chrono>
#include <span>
#include <string>
#include <vector>

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
      continue; // of a rank on another node, a report knows no last operation
    INFO(fault.name);
    const auto attempt = [&](std::chrono::nanoseconds deadline) {
      meeting.barrier(); // some ranks end a fault late
      const sw::LaunchOptions options{.deadline = deadline};
      std::string wrong;
      {
        fault_suite::Scene<MpiPlace> scene(
            sw::HostCommunicator(sw::detail::make_mpi_transport(MPI_COMM_WORLD, options, ranks_per_node)),
            [&] { meeting.barrier(); }, nullptr, [&] { meeting.barrier(); });
        wrong = fault_suite::try_fault(fault, scene);
      }
      std::vector<int> all_right{wrong.empty() ? 1 : 0};
      meeting.all_reduce_in_place(std::span(all_right), sw::ReduceOp::minimum);
      return all_right.front() == 1 || !wrong.empty() ? wrong : std::string("another rank found an error");
    };
    CHECK(fault_suite::try_patiently(fault, std::chrono::milliseconds(500), attempt) == "");
  }
}
