// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: operation: it must declare what its gradient reads (give it static constexpr bool gradient_reads_input and gradient_reads_output)
// expect: Doubled

#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Doubled {
  static constexpr std::string_view name = "doubled";
#ifndef SHARDWRIGHT_EXPECT_FAIL
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
#endif
  template <AnyShardedTensor X> auto forward(SourceLocation, const X& x) const { return x.share(); }
  template <class G, class X, class Y> auto gradient(G gradient, const X&, const Y&) const {
    return gradient;
  }
};

void use(const Var<Layout<2, Shard<0, dp>>>& x) { static_cast<void>(apply(Doubled{}, {}, x)); }
