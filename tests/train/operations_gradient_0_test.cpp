// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "train/operation_list.hpp"

using namespace operations_test;
using shardwright_test::on_ranks;

TEST_CASE("gradients of operations of one operand are their slopes in every layout, part 0") {
  CHECK(on_ranks(3, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<tp>(3)};
          OnOneAxis::check<0, 2>(mesh, findings);
        }) == "");
}
