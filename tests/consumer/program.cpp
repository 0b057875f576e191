// SPDX-License-Identifier: Apache-2.0
// A user's program: the same source for every way to get at the library.
#include <shardwright/shardwright.hpp>

#include <cstdio>

namespace sw = shardwright;
using namespace sw::axis;

int main() {
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Unfinished = sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>;
  static_assert(sw::Transition<Unfinished, Rows>::count<sw::AllReduce> == 1);

  Kokkos::initialize();
  int sum = 0;
  {
    Kokkos::View<int*> values("values", 4);
    Kokkos::deep_copy(values, SHARDWRIGHT_VERSION_MAJOR + 1);
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, values);
    for (std::size_t index = 0; index < 4; ++index) {
      sum += host(index);
    }
  }
  Kokkos::finalize();
  std::printf("sum %d\n", sum);
  return sum == 4 * (SHARDWRIGHT_VERSION_MAJOR + 1) ? 0 : 1;
}
