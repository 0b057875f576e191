// SPDX-License-Identifier: Apache-2.0
// Every kernel of tensor/kernels in float, compiled for the device; on a machine with a GPU, run and compared
// with the host. A program for each element type, as nvcc takes minutes for each.
#include "cuda/every_kernel.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return kernel_program(argc, argv, [](std::string_view group) {
    bool sound = kernels_agree<float>("kernels in float", odd_heads(small_sizes, 19, 11), 1e-4, group);
    sound &= kernels_agree<float>("kernels in float, odd sizes", shorter(odd_sizes), 3e-4, group);
    sound &= kernels_agree<float>("kernels in float, even sizes", shorter(even_sizes), 3e-4, group);
    sound &= kernels_agree<float>("kernels in float, long rows", odd_heads(shorter(long_rows), 131, 130),
                                  3e-4, group);
    sound &= kernels_agree<float>("kernels in float, long odd rows", odd_heads(long_odd_rows, 24, 11), 3e-4,
                                  group);
    sound &= wide_norms_agree<float>("norms in float, wide rows", 3e-4, group);
    return sound;
  });
}
