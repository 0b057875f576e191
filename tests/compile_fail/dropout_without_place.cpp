// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: dropout: it must know its place in the model, which keys its mask (use the module Dropout, or pass a DropoutUse with a number of its own)

#include <shardwright/nn/layers/dropout.hpp>

using namespace shardwright;

void thin(const Var<Layout<1>>& x, const Dropout& place) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(place);
  dropout(x, 0.1);
#else
  static_cast<void>(place(x));
#endif
}
