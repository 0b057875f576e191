// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Kernel: its functor must have at most 3840 bytes, which a device takes as arguments without a wait (leave arrays in memory and pass pointers to them)

#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr std::size_t numbers = 1000;
#else
constexpr std::size_t numbers = 4;
#endif

struct ScaleByTable {
  float* data;
  float table[numbers];
  void operator()(std::size_t i) const { data[i] *= table[i % numbers]; }
};

void scale(const Kokkos::DefaultHostExecutionSpace& execution, float* data, std::size_t count) {
  shardwright::kernels::run("scale", execution, count, ScaleByTable{data, {}});
}
