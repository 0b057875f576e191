// SPDX-License-Identifier: Apache-2.0
//
// Two ranks behind a simulated link, with a clock: how much of an all_reduce is exposed, and how much is
// hidden.
#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

void compute() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

int main(int argc, char** argv) {
  const auto program = [](sw::HostCommunicator world) {
    //! [link]
    // 50 microseconds and 200 MB/s in each direction, whatever the real machine has.
    const sw::LinkOptions link{.latency_seconds = 50e-6, .bytes_per_second = 200e6};
    const auto clock = std::make_shared<sw::CommunicationClock>();
    const sw::DeviceMesh mesh{sw::timed(sw::simulated_link(world, link), clock, "dp"), sw::extent<dp>(2)};
    clock->restart(); // excludes the mesh's own setup messages

    std::vector<float> gradient(1'000'000, 1.0f); // 4 MB: 20 ms on this link
    sw::Pending sum = mesh.communicator<dp>().async().all_reduce_in_place(gradient);
    compute();
    sum.wait();
    for (const sw::CommunicationKind& kind : clock->kinds())
      std::printf("%s: %.1f ms, of which exposed %.1f ms\n", kind.name().c_str(), kind.totals.seconds * 1e3,
                  kind.totals.exposed_seconds * 1e3);
    //! [link]
    const auto kinds = clock->kinds();
    if (kinds.size() != 1 || kinds[0].name() != "dp all_reduce" || kinds[0].totals.seconds < 0.0199)
      throw std::runtime_error("the clock must have seen one all_reduce of 20 ms");
  };
  return sw::run(argc, argv, program, {.ranks = 2});
}
