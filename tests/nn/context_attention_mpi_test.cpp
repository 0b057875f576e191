// SPDX-License-Identifier: Apache-2.0
#include "nn/context_check.hpp"
#include "support/catch.hpp"

TEST_CASE("attention over MPI ranks equals that of whole sequences, in both forms") {
  namespace sw = shardwright;
  sw::LaunchOptions options;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_ranks(options, [](sw::HostCommunicator world) {
    shardwright_test::Findings findings;
    for (const nn_test::ContextWay way : nn_test::context_ways)
      if (way.context * way.tensor == world.size()) {
        nn_test::check_context<sw::RingContext, double>(world, findings, way, 1e-14);
        nn_test::check_context<sw::AllToAllContext, double>(world, findings, way, 1e-14);
      }
    CHECK(findings.text() == "");
  });
}
