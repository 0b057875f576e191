// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ParameterGroup: a group must say which parameters belong to it (set matches; for all parameters, to [](const ParameterInfo&) { return true; })

#include <shardwright/train/optimizer/states.hpp>

using namespace shardwright;

ParameterGroup without_decay() {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return {.weight_decay_factor = 0};
#else
  return {.matches = [](const ParameterInfo&) { return true; }, .weight_decay_factor = 0};
#endif
}
