// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Embedding: the ids must be in the layout and on the target that the module is made for (redistribute them, or change the module's Ids)

#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Tokens = Layout<2, Shard<0, dp>>;
using Words = Embedding<Tokens, Layout<2>>;

void read(Tape<>& tape, Words& words, const ShardedTensor<Layout<2, Shard<0, dp, tp>>, std::int32_t>& ids) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(words(tape, ids));
#else
  static_cast<void>(words(tape, redistribute<Tokens>(ids)));
#endif
}
