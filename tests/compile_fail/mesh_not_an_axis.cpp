// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name
// expect: foo

#include <shardwright/mesh/device_mesh.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct foo {
  static constexpr std::string_view name = "foo";
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Second = foo;
#else
using Second = tp;
#endif

int ranks(const HostCommunicator& world) {
  const DeviceMesh mesh{world, extent<dp>(2), extent<Second>(2)};
  return mesh.extent<dp>();
}
