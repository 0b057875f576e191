// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another

#include <shardwright/nn/layers/embedding.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Ids = Layout<2, Shard<0, dp>>;
using Table = Layout<2, Shard<0, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2, Shard<0, tp>>; // ranks of dp have met other words
#else
using Raw = Layout<2, Shard<0, tp>, Partial<Sum, dp>>;
#endif

void look_up(Tape<>& tape, const ShardedTensor<Ids, std::int32_t>& ids, Parameter<Table, Raw>& table) {
  static_cast<void>(embed(tape, ids, table));
}
