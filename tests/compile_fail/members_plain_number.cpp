// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: members: a member must be a Parameter, a module with members(), or a container of modules (leave plain numbers out)

#include <shardwright/train/members.hpp>

using namespace shardwright;

struct Module {
  Parameter<Layout<1>, Layout<1>> gain;
  double epsilon = 1e-5;
#ifdef SHARDWRIGHT_EXPECT_FAIL
  auto members() { return shardwright::members("gain", gain, "epsilon", epsilon); }
#else
  auto members() { return shardwright::members("gain", gain); }
#endif
};

void start(Module& module) { initialize(module, 1); }
