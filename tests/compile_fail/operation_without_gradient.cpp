// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: operation: it must have a gradient to be used on a tape (give it gradient(y_gradient, x, y), with the state as a fourth argument if forward returns one)
// expect: Halved

#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Halved {
  static constexpr std::string_view name = "halved";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  template <AnyShardedTensor X> auto forward(SourceLocation, const X& x) const { return x.share(); }
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class G, class X, class Y> auto gradient(G gradient, const X&, const Y&) const {
    return gradient;
  }
#endif
};

void use(const Var<Layout<2, Shard<0, dp>>>& x) { static_cast<void>(apply(Halved{}, {}, x)); }
