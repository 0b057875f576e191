// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: NoImplicitConversionCallRedistributeShareOrClone

#include <shardwright/tensor/redistribute.hpp>

#include <utility>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = ShardedTensor<Layout<2, Partial<Sum, dp>>,
                            const float>; // a handle's memory is shared: no owner comes out
#else
using Given = ShardedTensor<Layout<2, Partial<Sum, dp>>>;
#endif

ShardedTensor<Layout<2>> finish(Given given) { return redistribute<Layout<2>>(std::move(given)); }
