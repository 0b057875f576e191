// SPDX-License-Identifier: Apache-2.0
// expect: add: an incomplete sum (Partial) cannot be added to a complete value
// expect: (redistribute the Partial first)

#include <shardwright/layout/elementwise_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2>;
#else
using Right = Layout<2, Partial<Sum, tp>>;
#endif
static_assert(AddLayout<Layout<2, Partial<Sum, tp>>, Right>::tensor_rank >= 0);
