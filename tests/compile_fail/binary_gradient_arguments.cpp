// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: binary function: left_gradient and right_gradient must take (dy, left, right) (write Unread for an operand that they do not read)
// expect: Average

#include <shardwright/tensor/elementwise/binary.hpp>

#include <string_view>

using namespace shardwright;

struct Average {
  static constexpr std::string_view name = "average";
  template <class V> V operator()(V left, V right) const { return 0.5 * (left + right); }
  template <class V> V left_gradient(V dy, Unread, Unread) const { return 0.5 * dy; }
#ifdef SHARDWRIGHT_EXPECT_FAIL
  template <class V> V right_gradient(V dy) const { return 0.5 * dy; }
#else
  template <class V> V right_gradient(V dy, Unread, Unread) const { return 0.5 * dy; }
#endif
};
inline constexpr Binary<Average> average{};
