// SPDX-License-Identifier: Apache-2.0
// The part of a user's project that the host's compiler compiles.
#include <shardwright/layout/transition.hpp>

#if defined(__CUDACC__)
#error "this target is not for the device"
#endif

namespace sw = shardwright;
using namespace sw::axis;

int main() {
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Unfinished = sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>;
  static_assert(sw::Transition<Unfinished, Rows>::count<sw::AllReduce> == 1);
}
