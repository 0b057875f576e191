// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "train/operation_list.hpp"

using namespace operations_test;
using shardwright_test::on_ranks;

TEST_CASE("gradients of operations of two operands are their slopes in every pair of layouts, part 0") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
          OnTwoAxes::check<0, 3>(mesh, findings);
        }) == "");
}
