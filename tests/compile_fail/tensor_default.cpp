// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: ShardedTensor: it must be made on a mesh, which says which block this rank holds

#include <shardwright/tensor/sharded_tensor.hpp>

#include <optional>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Held = ShardedTensor<Layout<2, Shard<0, dp>>>;
#else
using Held = std::optional<ShardedTensor<Layout<2, Shard<0, dp>>>>;
#endif

void make() { const Held tensor; }
