// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Operation: both tensors must have the same element type (convert one first)

#include <shardwright/tensor/elementwise.hpp>

using namespace shardwright;

void add_to_main(const ShardedTensor<Layout<2>>& main, const ShardedTensor<Layout<2>, bfloat16>& narrow) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  const auto sum = add(main, narrow);
#else
  const auto sum = add(main, convert<float>(narrow));
#endif
  static_cast<void>(sum);
}
