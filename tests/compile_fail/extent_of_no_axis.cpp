// SPDX-License-Identifier: Apache-2.0
// expect: Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name
// expect: model

#include <shardwright/layout/mesh_shape.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
struct model {};
#else
struct model : axis_tag<model> {
  static constexpr std::string_view name = "model";
};
#endif

auto wide() { return extent<model, 2>(); }
