// SPDX-License-Identifier: Apache-2.0
// expect: Layout: the tensor rank must be between 0 and 6 (merge dimensions)

#include <shardwright/layout/layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Placed = Layout<7>;
#else
using Placed = Layout<6>;
#endif
static_assert(Placed::tensor_rank <= 6);
