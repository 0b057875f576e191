// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: elementwise function: it must have a formula operator()(x) and a slope(x), or gradient(dy) if that is linear, which return the type of their argument (write them as templates of that type)
// expect: Cube

#include <shardwright/tensor/elementwise/functions.hpp>

#include <string_view>

using namespace shardwright;

struct Cube {
  static constexpr std::string_view name = "cube";
  static constexpr bool slope_of_result = false;
  template <class V> V operator()(V x) const { return x * x * x; }
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class V> V slope(V x) const { return 3 * x * x; }
#endif
};
inline constexpr Elementwise<Cube> cube{};
