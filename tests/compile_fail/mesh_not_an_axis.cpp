// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name
// expect: foo

#include <shardwright/mesh/device_mesh.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct foo {
  static constexpr std::string_view name = "dp";
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Asked = foo; // has the name, but is no tag
#else
using Asked = dp;
#endif

int ranks(const DeviceMesh<dp, tp>& mesh) { return mesh.extent<Asked>() * mesh.communicator<Asked>().size(); }
