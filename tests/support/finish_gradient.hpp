// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What GradAccumulator::finish does for one parameter.

namespace shardwright_test {

/// @brief Completes and reduces the gradient of a parameter. Collective.
template <class Parameter> void finish_gradient(const Parameter& parameter) {
  auto& gradient = parameter.gradient_state();
  gradient.complete();
  gradient.wait();
  gradient.sum_over_copies();
}

} // namespace shardwright_test
