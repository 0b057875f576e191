// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Module: the input must be in the layout that the module is made for (read it with .as<In>(), or change the module's In)

#include <shardwright/nn/layers/linear.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Stream = Layout<2, Shard<0, dp, tp>>;
using Tokens = Layout<2, Shard<0, dp>>;

void project(const Var<Stream>& x, Linear<Tokens, Layout<2, Shard<1, tp>>>& up) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(up(x));
#else
  static_cast<void>(up(x.as<Tokens>()));
#endif
}
