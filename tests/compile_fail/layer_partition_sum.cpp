// SPDX-License-Identifier: Apache-2.0
// expect: LayerPartition: the layers of the stages must sum to the layers of the model
// expect: (change the layers of a stage, or the layers of the model)
// expect: LayersOfStages<11,

#include <shardwright/schedule/layer_partition.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Partition = StaticLayerPartition<12, 2, 3, 3, 3>;
#else
using Partition = StaticLayerPartition<12, 2, 3, 3, 4>;
#endif
static_assert(Partition::stages == 4);
