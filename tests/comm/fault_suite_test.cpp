// SPDX-License-Identifier: Apache-2.0
#include "comm/fault_ranks.hpp"
#include "support/catch.hpp"

#include <chrono>

TEST_CASE("thread ranks pass the fault suite", "[comm][faults]") {
  using communicator_suite::HostPlace;
  for (const int ranks : {2, 3})
    for (const auto& fault : fault_suite::faults_and_throws<HostPlace>()) {
      INFO(fault.name << " on " << ranks << " ranks");
      CHECK(fault_suite::on_thread_ranks(fault, ranks, std::chrono::milliseconds(500),
                                         [](auto world) { return HostPlace(std::move(world)); }) == "");
    }
}
