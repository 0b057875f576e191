// SPDX-License-Identifier: Apache-2.0
#include "comm/fault_ranks.hpp"
#include "support/catch.hpp"
#include "support/fake_nccl.hpp"
#include "support/fake_place.hpp"

#include <shardwright/device/nccl/transport.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace {

namespace sw = shardwright;
using namespace shardwright_test;

/// One rank's fakes, and its communicator over NCCL that compares the calls of all ranks.
struct NcclPlace : FakeDevice {
  using compares_on_hosts = void;

  explicit NcclPlace(const sw::HostCommunicator& host)
      : FakeDevice(FakeRuntime(static_cast<unsigned>(host.rank()) * 1000 + 1)),
        comm(std::make_shared<sw::detail::NcclTransport<FakeNccl, FakeRuntime>>(
            host, FakeNccl(std::make_shared<NcclScript>()), runtime, stream,
            sw::NcclOptions{.check = true})) {}

  sw::DeviceCommunicator comm;
};

} // namespace

TEST_CASE("NCCL ranks pass the fault suite", "[comm][faults]") {
  for (const int ranks : {2, 3})
    for (const auto& fault : fault_suite::faults_and_throws<NcclPlace>()) {
      INFO(fault.name << " on " << ranks << " ranks");
      CHECK(fault_suite::on_thread_ranks(fault, ranks, std::chrono::milliseconds(500),
                                         [](const auto& world) { return NcclPlace(world); }) == "");
      CHECK(FakeNcclWorld::get().violations() == "");
      CHECK(FakeNcclWorld::get().communicators == 0);
    }
}

TEST_CASE("thread ranks on one device pass the fault suite", "[comm][faults]") {
  for (const int ranks : {2, 3})
    for (const auto& fault : fault_suite::faults_and_throws<FakePlace>()) {
      INFO(fault.name << " on " << ranks << " ranks");
      CHECK(fault_suite::on_thread_ranks(fault, ranks, std::chrono::milliseconds(500), [](const auto& world) {
              return FakePlace(world, FakeRuntime(17));
            }) == "");
    }
}
