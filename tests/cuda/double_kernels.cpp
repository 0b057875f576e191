// SPDX-License-Identifier: Apache-2.0
// Every kernel of tensor/kernels in double, as kernels.cpp.
#include "cuda/every_kernel.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return kernel_program(argc, argv, [](std::string_view group) {
    bool sound = kernels_agree<double>("kernels in double", odd_heads(small_sizes, 19, 11), 1e-11, group);
    sound &= kernels_agree<double>("kernels in double, odd sizes", shorter(odd_sizes), 1e-10, group);
    sound &= kernels_agree<double>("kernels in double, even sizes", shorter(even_sizes), 1e-10, group);
    sound &= kernels_agree<double>("kernels in double, long rows", odd_heads(shorter(long_rows), 131, 130),
                                   1e-10, group);
    sound &= kernels_agree<double>("kernels in double, long odd rows", odd_heads(long_odd_rows, 24, 11),
                                   1e-10, group);
    sound &= wide_norms_agree<double>("norms in double, wide rows", 1e-10, group);
    return sound;
  });
}
