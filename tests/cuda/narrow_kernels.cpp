// SPDX-License-Identifier: Apache-2.0
// Every kernel of tensor/kernels in bfloat16, as kernels.cpp.
#include "cuda/every_kernel.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return kernel_program(argc, argv, [](std::string_view group) {
    // For a rounding that goes the other way, and its consequences.
    constexpr double brain = 4 * 0x1p-7;
    bool sound = kernels_agree<sw::bfloat16>("kernels in bfloat16", small_sizes, brain, group);
    sound &= kernels_agree<sw::bfloat16>("kernels in bfloat16, odd sizes", odd_sizes, brain, group);
    sound &= kernels_agree<sw::bfloat16>("kernels in bfloat16, even sizes", even_sizes, brain, group);
    sound &= kernels_agree<sw::bfloat16>("kernels in bfloat16, long rows", long_rows, brain, group);
    sound &= kernels_agree<sw::bfloat16>("kernels in bfloat16, long odd rows", long_odd_rows, brain, group);
    sound &= wide_norms_agree<sw::bfloat16>("norms in bfloat16, wide rows", brain, group);
    return sound;
  });
}
