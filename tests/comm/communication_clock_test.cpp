// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/simulated_link.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

bool near(double value, double wanted) { return std::abs(value - wanted) <= 1e-8; }

} // namespace

TEST_CASE("a timed communicator passes the communicator suite, and counts its calls", "[comm]") {
  for (const int ranks : {1, 3})
    for (const communicator_suite::Part& part : communicator_suite::parts()) {
      INFO(part.name << " on " << ranks << " ranks");
      REQUIRE_NOTHROW(shardwright_test::launch_ranks(
          {.ranks = ranks, .deadline = std::chrono::seconds(60)}, [&](sw::HostCommunicator world) {
            auto clock = std::make_shared<sw::CommunicationClock>();
            part.run(sw::timed(std::move(world), clock));
            communicator_suite::require(ranks == 1 || clock->total().calls > 0, "nothing was counted");
          }));
    }
}

TEST_CASE("a call is exposed if it is waited for at once, and hidden if the rank does other things",
          "[comm]") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          // 4000 floats: 16 kB over the link of two ranks, at 1 MB/s.
          constexpr double time = 0.016;
          auto clock = std::make_shared<sw::CommunicationClock>();
          sw::HostCommunicator comm = sw::timed(sw::simulated_link(world, {0, 1e6}), clock, "dp");
          sw::HostCommunicator part = comm.split(0, world.rank(), "tp");
          std::vector<float> data(4000, 1.0f);
          clock->restart();

          comm.all_reduce_in_place(data);
          const sw::CommunicationTotals blocking = clock->kind("dp", sw::Operation::all_reduce).totals;
          findings.expect(blocking.calls == 1 && blocking.bytes == 16000, blocking.bytes, " bytes");
          findings.expect(blocking.seconds >= time - 1e-8, "the link takes ", time);
          findings.expect(near(blocking.exposed_seconds, blocking.seconds),
                          "all of a blocking call is exposed");
          findings.expect(blocking.waited_seconds >= blocking.exposed_seconds, "waited at least that");

          clock->restart();
          sw::Pending pending = comm.async().all_reduce_in_place(data);
          while (!pending.ready())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          pending.wait();
          const sw::CommunicationTotals hidden = clock->kind("dp", sw::Operation::all_reduce).totals;
          findings.expect(hidden.calls == 1 && hidden.seconds >= time - 1e-8, "counted at its wait");
          findings.expect(hidden.exposed_seconds == 0, "nobody waited: ", hidden.exposed_seconds);
          findings.expect(hidden.hidden_seconds() == hidden.seconds, "all hidden");

          // Waiting for a peer is not communication.
          clock->restart();
          if (world.rank() == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
          part.barrier();
          const sw::CommunicationTotals late = clock->kind("tp", sw::Operation::barrier).totals;
          findings.expect(late.seconds < 0.03 || world.rank() == 1, "a late peer counts as communication");
          clock->count(false);
          part.barrier();
          comm.split(world.rank(), 0, "alone").barrier();
          clock->count(true);
          comm.split(world.rank(), 0, "alone").barrier();
          findings.expect(clock->kinds().size() == 1 && clock->kinds()[0].name() == "tp barrier" &&
                              clock->total().calls == 1,
                          "kinds since the restart");
        }) == "");
}

TEST_CASE("messages and failures of a timed communicator", "[comm]") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          auto clock = std::make_shared<sw::CommunicationClock>();
          sw::HostCommunicator comm = sw::timed(world, clock);
          std::vector<float> data(1000, static_cast<float>(world.rank()));
          if (world.rank() == 0)
            comm.send(data, 1);
          else
            comm.receive(data, 0);
          findings.expect(data[999] == 0, "the message");
          const auto kinds = clock->kinds();
          findings.expect(kinds.size() == 1 &&
                              kinds[0].name() == (world.rank() == 0 ? "world send" : "world receive") &&
                              kinds[0].totals.bytes == 4000,
                          "the kind of a message");
          // The mean over the ranks: half a message of each kind.
          const auto mean = sw::mean_communication(world, *clock);
          findings.expect(mean.size() == 2 && mean[0].totals.calls == 0.5 && mean[1].totals.bytes == 2000,
                          "the mean over the ranks");
          try {
            std::vector<float> wrong(world.rank() == 0 ? 3 : 4);
            comm.all_reduce_in_place(wrong);
            findings.expect(false, "a mismatch must be found");
          } catch (const sw::CollectiveMismatch&) {
            findings.expect(clock->kind("world", sw::Operation::all_reduce).totals.calls == 0,
                            "a failed call is not counted");
          }
        }) == "");
  CHECK(sw::timed(sw::HostCommunicator(), nullptr).valid() == false);
}
