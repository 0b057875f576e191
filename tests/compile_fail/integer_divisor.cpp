// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: divide: a divisor must have floating-point elements, because a quotient of integers need not be an integer
// expect: (divide by a whole number, which rounds towards zero, or use floating-point elements)

#include <shardwright/tensor/operators.hpp>

#include <cstdint>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int64_t;
#else
using Element = double;
#endif

auto inverse(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return 6 / x; }
