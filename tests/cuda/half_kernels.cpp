// SPDX-License-Identifier: Apache-2.0
// Every kernel of tensor/kernels in float16, as kernels.cpp.
#include "cuda/every_kernel.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return kernel_program(argc, argv, [](std::string_view group) {
    // For a rounding that goes the other way, and its consequences.
    constexpr double half = 4 * 0x1p-10;
    bool sound = kernels_agree<sw::float16>("kernels in float16", small_sizes, half, group);
    sound &= kernels_agree<sw::float16>("kernels in float16, odd sizes", odd_sizes, half, group);
    sound &= kernels_agree<sw::float16>("kernels in float16, even sizes", even_sizes, half, group);
    sound &= kernels_agree<sw::float16>("kernels in float16, long rows", long_rows, half, group);
    sound &= kernels_agree<sw::float16>("kernels in float16, long odd rows", long_odd_rows, half, group);
    sound &= wide_norms_agree<sw::float16>("norms in float16, wide rows", half, group);
    return sound;
  });
}
