// SPDX-License-Identifier: Apache-2.0
// A user's program: the same source for every way to use the library.
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <array>
#include <cstdio>

#if defined(SHARDWRIGHT_COMPILED)
#error "shardwright::shardwright must not define SHARDWRIGHT_COMPILED"
#endif

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
  std::array<int, 2> ranks{};
  sw::launch({.ranks = 2}, [&](sw::HostCommunicator world) {
    std::array<int, 1> one{1};
    world.all_reduce_in_place(one);
    ranks[static_cast<std::size_t>(world.rank())] = one[0];
  });
  Kokkos::finalize();
  std::printf("sum %d, ranks %d and %d\n", sum, ranks[0], ranks[1]);
  return sum == 4 * (SHARDWRIGHT_VERSION_MAJOR + 1) && ranks == std::array{2, 2} ? 0 : 1;
}
