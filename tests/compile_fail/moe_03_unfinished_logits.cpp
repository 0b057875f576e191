// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: route: the input must not be Partial, an incomplete sum (redistribute it first)

#include <shardwright/nn/experts/route.hpp>

using namespace shardwright;
using namespace shardwright::axis;

void choose(const Var<Layout<2, Shard<0, dp>, Partial<Sum, tp>>>& logits) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(route(logits, {.chosen = 2})); // each rank of tp would choose by its part of the sum
#else
  static_cast<void>(route(logits.as<Layout<2, Shard<0, dp>>>(), {.chosen = 2}));
#endif
}
