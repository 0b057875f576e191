// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: elementwise function: the input must not be Partial, an incomplete sum (redistribute it first)
// expect: GeluTanh
// expect: tp

#include <shardwright/tensor/elementwise/functions.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
#else
using Input = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif

// The second function is silent: only the first one is wrong.
auto activated(const ShardedTensor<Input>& x) { return square(gelu_tanh(x)); }
