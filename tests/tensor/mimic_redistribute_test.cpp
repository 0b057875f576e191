// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "tensor/transition_check.hpp"

using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;

TEST_CASE("a device target redistributes to the bits of the host", "[tensor]") {
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, transition_check::over_one_axis<MimicTarget>) == "");
}

TEST_CASE("a device target redistributes over two axes to the bits of the host", "[tensor]") {
  CHECK(on_ranks(4, transition_check::over_two_axes<MimicTarget>) == "");
}
