// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/device_as_host.hpp"
#include "support/failures.hpp"
#include "support/fake_nccl.hpp"

#include <shardwright/comm/launch.hpp>
#include <shardwright/comm/nccl_transport.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace sw = shardwright;
using communicator_suite::require;
using rank_outcomes::ample;
using rank_outcomes::brief;
using shardwright_test::FakeNccl;
using shardwright_test::FakeNcclWorld;
using shardwright_test::FakeRuntime;
using shardwright_test::NcclScript;
using Transport = sw::detail::NcclTransport<FakeNccl, FakeRuntime>;

/// One rank's fakes and its communicator.
struct Rank {
  explicit Rank(sw::HostCommunicator host, sw::NcclOptions options = {.check = false},
                std::shared_ptr<NcclScript> own = std::make_shared<NcclScript>())
      : script(std::move(own)), runtime(static_cast<unsigned>(host.rank()) * 1000 + 1),
        stream(runtime.make_stream()),
        comm(std::make_shared<Transport>(std::move(host), FakeNccl(script), runtime, stream, options)) {}

  std::shared_ptr<NcclScript> script;
  FakeRuntime runtime;
  FakeRuntime::Stream stream;
  sw::DeviceCommunicator comm;
};

/// Nothing was done that the real NCCL would answer by a hang, and no communicator was forgotten.
void check_leftovers() {
  CHECK(FakeNcclWorld::get().violations() == "");
  CHECK(FakeNcclWorld::get().communicators == 0);
}

} // namespace

TEST_CASE("NCCL ranks pass the communicator suite", "[comm]") {
  for (const bool check : {false, true})
    for (const int ranks : {1, 2, 3, 4})
      for (const communicator_suite::Part& part : communicator_suite::parts()) {
        // NCCL reduces in an order of its own: one level here.
        if (std::string_view(part.name) == "nested reduction orders" || (check && ranks != 3))
          continue;
        INFO(part.name << " on " << ranks << " ranks" << (check ? ", with fingerprints" : ""));
        REQUIRE_NOTHROW(sw::launch({.ranks = ranks, .deadline = ample}, [&](sw::HostCommunicator world) {
          const Rank rank(std::move(world), {.check = check});
          part.run(shardwright_test::DeviceAsHost<shardwright_test::SameMemory>::of(rank.comm));
        }));
        check_leftovers();
      }
}
