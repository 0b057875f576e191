// SPDX-License-Identifier: Apache-2.0
// expect: extent: a static extent must be positive (use 1 for an axis that is not needed)

#include <shardwright/layout/mesh_shape.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int ranks = 0;
#else
constexpr int ranks = 1;
#endif
void make() { static_cast<void>(extent<dp, ranks>()); }
