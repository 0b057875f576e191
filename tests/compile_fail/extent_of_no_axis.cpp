// SPDX-License-Identifier: Apache-2.0
// expect: extent: it must be of an axis (write struct name : axis_tag<name> { static constexpr std::string_view name =
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

auto wide() { return extent<model>(2); }
