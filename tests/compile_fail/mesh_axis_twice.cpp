// SPDX-License-Identifier: Apache-2.0
// expect: MeshShape: an axis may appear only once in a mesh (remove the second one)

#include <shardwright/layout/mesh_shape.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Second = dp;
#else
using Second = tp;
#endif
void make() {
  MeshShape shape{extent<dp>(2), extent<Second>(2)};
  static_cast<void>(shape);
}
