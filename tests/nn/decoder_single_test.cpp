// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"

// Single precision. The assertions are those of same_on_every_mesh.hpp, which decoder_double_test.cpp holds
// against 1e-10, beside others: here the losses of 20 steps agree with one rank to 1e-5 relative.

nn_test::Outcome nn_test::train_single(const sw::HostCommunicator& world, const Problem& problem,
                                       const Way& way, const AtStep& at_step) {
  return train<float>(world, problem, way, at_step);
}

TEST_CASE("a decoder trains alike on every mesh in single precision") {
  nn_test::check_every_mesh<float>(1e-5);
}

TEST_CASE("two runs on one mesh give the same bits in single precision") {
  nn_test::check_repetition<float>();
}
