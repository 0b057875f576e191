// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"
#include "support/catch.hpp"

// Single precision: the losses of 20 steps agree with one rank to 1e-5, where decoder_double_test.cpp
// requires 1e-10.

nn_test::Outcome nn_test::train_single(const sw::HostCommunicator& world, const Problem& problem,
                                       const Way& way, const AtStep& at_step) {
  return train<float>(world, problem, way, at_step);
}

TEST_CASE("a decoder trains alike on every mesh in single precision") {
  const nn_test::MeshComparisons compared = nn_test::compare_meshes<float>();
  CHECK(compared.learns);
  REQUIRE(compared.meshes.size() == 2 * nn_test::ways().size());
  for (const nn_test::MeshComparison& each : compared.meshes) {
    INFO(each.text);
    CHECK(each.same_ranks);
    CHECK(each.same_tokens);
    CHECK(each.losses <= 1e-5);
    CHECK(each.norms <= 1e-3);
    CHECK(each.parameters <= 1e-2);
  }
}

TEST_CASE("two runs on one mesh give the same bits in single precision") {
  CHECK(nn_test::meshes_that_do_not_repeat<float>() == "");
}
