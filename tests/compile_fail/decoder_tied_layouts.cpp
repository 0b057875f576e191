// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: TiedLayouts: tied weights must have the same layout
// expect: (give both the same, or redistribute before the second use)

#include <shardwright/nn/decoder.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Layouts : DecoderLayouts<false> {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  using Head = Layout<2, Shard<1, tp>>; // the first stage's table is split over the vocabulary
#else
  using Head = Table;
#endif
};

static_assert(sizeof(Decoder<Layouts>::Table) != 0);
