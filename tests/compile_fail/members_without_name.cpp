// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: members: every member must come with its name

#include <shardwright/train/members.hpp>

using namespace shardwright;

using Vector = Parameter<Layout<1>, Layout<1>>;

auto list(Vector& up, Vector& down) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return members("up", up, down);
#else
  return members("up", up, "down", down);
#endif
}
