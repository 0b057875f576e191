// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_models.hpp"

// The models of nn/reproducible_models_test.cpp with the elements and owners that the suite leaves out, for
// 20 steps.

namespace {

using namespace nn_test;

constexpr Work long_run{.steps = 20};

using TensorOwners = Experts<float, sw::AxisList<ep, tp>>;

} // namespace

TEST_CASE("GPT-2 of float has the same bits on every mesh") {
  check<Gpt2<float>>({.layers = 2, .vocabulary = 16}, other_cuts(), long_run);
}

TEST_CASE("GPT-2 of float has the same bits on four threads or processes", "[four_processes]") {
  check_four<Gpt2<float>>({.layers = 2, .vocabulary = 16}, cuts_of_four(), long_run);
}

TEMPLATE_TEST_CASE("a decoder with experts has the same bits on every mesh", "", Experts<sw::bfloat16>,
                   TensorOwners) {
  check<TestType>(experts_config(), other_expert_cuts(), long_run);
}

TEMPLATE_TEST_CASE("a decoder with experts has the same bits on four threads or processes",
                   "[four_processes]", Experts<sw::bfloat16>, TensorOwners) {
  check_four<TestType>(experts_config(), expert_cuts_of_four(), long_run);
}
