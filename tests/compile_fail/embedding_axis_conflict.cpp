// SPDX-License-Identifier: Apache-2.0
// expect: embedding: an axis that shards the table must not shard the indices too
// expect: (gather one of them over it)

#include <shardwright/layout/embedding_layout.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Table = Layout<2, Shard<0, dp>>;
#else
using Table = Layout<2, Shard<0, tp>>;
#endif
static_assert(EmbeddingLayout<Layout<1, Shard<0, dp>>, Table>::tensor_rank >= 0);
