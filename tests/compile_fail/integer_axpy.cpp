// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: axpy: the elements must be floating-point, because the factor would be rounded to an integer (write y = a * x + y with a whole number)

#include <shardwright/tensor/axpy.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif
using Rows = ShardedTensor<Layout<1, Shard<0, dp>>, Element>;

void update(const Rows& x, Rows& y) { axpy(0.5, x, y); }
