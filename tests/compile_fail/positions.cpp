// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace dropout_of_halos {
// expect: dropout: the tensor must have no halos, whose copies would get different masks (redistribute it to WithoutHalos of its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Rows = Layout<2, Shard<0, dp, Halo<1>>>;
#else
using Rows = Layout<2, Shard<0, dp>>;
#endif

auto dropped(const ShardedTensor<Rows>& tensor, const DropoutUse& use, const BatchOrigin& origin) {
  return dropout(tensor, use, origin);
}
} // namespace dropout_of_halos

namespace dropout_without_place {
// expect: dropout: it must know its place in the model, which keys its mask (use the module Dropout, or pass a DropoutUse with a number of its own)

void thin(const Var<Layout<1>>& x, const Dropout& place) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(place);
  dropout(x, 0.1);
#else
  static_cast<void>(place(x));
#endif
}
} // namespace dropout_without_place

namespace position_table_sharded {
// expect: add_positions: the positions of the table must not be sharded (redistribute it, or shard its width)

void add_learned(const ShardedTensor<Layout<3, Shard<0, dp>>>& x,
                 const ShardedTensor<Layout<2, Shard<0, tp>>>& table) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(add_positions(x, table));
#else
  static_cast<void>(add_positions(x, redistribute<Layout<2>>(table)));
#endif
}
} // namespace position_table_sharded

namespace positions_of_halos {
// expect: add_positions: neither tensor may have halos (redistribute it to WithoutHalos of its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Stream = Layout<3, Shard<0, dp, Halo<1>>>;
#else
using Stream = Layout<3, Shard<0, dp>>;
#endif

void add_learned(const ShardedTensor<Stream>& x, const ShardedTensor<Layout<2>>& table) {
  static_cast<void>(add_positions(x, table));
}
} // namespace positions_of_halos
