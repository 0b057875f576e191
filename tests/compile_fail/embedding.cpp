// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace decoder_tied_layouts {
// expect: TiedLayouts: tied weights must have the same layout
// expect: (give both the same, or redistribute before the second use)

struct Layouts : DecoderLayouts<false> {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  using Head = Layout<2, Shard<1, tp>>; // the first stage's table is split over the vocabulary
#else
  using Head = Table;
#endif
};

static_assert(sizeof(Decoder<Layouts>::Table) != 0);
} // namespace decoder_tied_layouts

namespace embedding_axis_conflict {
// expect: embedding: an axis that shards the table must not shard the indices too
// expect: (gather one of them over it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Table = Layout<2, Shard<0, dp>>;
#else
using Table = Layout<2, Shard<0, tp>>;
#endif

static_assert(EmbeddingLayout<Layout<1, Shard<0, dp>>, Table>::tensor_rank >= 0);
} // namespace embedding_axis_conflict

namespace embedding_ids_layout {
// expect: Embedding: the ids must be in the layout and on the target that the module is made for (redistribute them, or change the module's Ids)

using Tokens = Layout<2, Shard<0, dp>>;
using Words = Embedding<Tokens, Layout<2>>;

void read(Tape<>& tape, Words& words, const ShardedTensor<Layout<2, Shard<0, dp, tp>>, std::int32_t>& ids) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(words(tape, ids));
#else
  static_cast<void>(words(tape, redistribute<Tokens>(ids)));
#endif
}
} // namespace embedding_ids_layout

namespace reproducible_table_value {
// expect: Reproducible: an operand whose gradient is a sum over the rows of a result, such as a bias, a gain or a table, must be a Parameter, to which terms are added without rounding (make it one, or use the target without Reproducible)

using Target = Reproducible<DefaultTarget>;
using Ids = ShardedTensor<Layout<1, Shard<0, dp>>, const std::int32_t, Target>;
using Table = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, DataParallel, Target>;

auto look_up(Tape<Target>& tape, const Ids& ids, Table& table, Var<Layout<2>, float, Target>& value) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(table);
  return embed(ids, value);
#else
  static_cast<void>(value);
  return embed(tape, ids, table);
#endif
}
} // namespace reproducible_table_value

namespace tied_layouts_differ {
// expect: TiedLayouts: tied weights must have the same layout
// expect: (give both the same, or redistribute before the second use)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Output = Layout<2, Shard<1, tp>>;
#else
using Output = Layout<2, Shard<0, tp>>;
#endif

static_assert(TiedLayouts<Layout<2, Shard<0, tp>>, Output>::tensor_rank >= 0);
} // namespace tied_layouts_differ
