// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)
// expect: operation::Divide

#include <shardwright/tensor/operators.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int64_t;
#else
using Element = double;
#endif
using Rows = ShardedTensor<Layout<1, Shard<0, dp>>, Element>;

auto quotient(const Rows& x, const Rows& y) { return x / y; }
