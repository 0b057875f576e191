// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A fake of CUDA's runtime library, linked in its place, for one unit of a program, whose kernels are
/// called on the host.
///
/// It is included before the headers under test: they find its way to launch a kernel, which knows the type
/// of the arguments.

#include "support/fake_cuda_calls.hpp"
#include "support/fake_cuda_library.hpp"

#include <cuda_runtime_api.h>
#include <device_launch_parameters.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#if !defined(__launch_bounds__)
#define __launch_bounds__(...)
#endif

// Written by the device, so not const here; the names are those of the declarations.
uint3 fake_cuda_thread __asm__("threadIdx");
uint3 fake_cuda_block __asm__("blockIdx");

/// @brief Calls the kernel for every thread of every block, one after another.
template <class Kernel>
cudaError_t cudaLaunchKernel(void (*kernel)(Kernel, std::uint64_t, unsigned), dim3 grid, dim3 block,
                             void** arguments, std::size_t, cudaStream_t stream) {
  const Kernel of = *static_cast<const Kernel*>(arguments[0]);
  const auto tiles = *static_cast<const std::uint64_t*>(arguments[1]);
  const auto groups = *static_cast<const unsigned*>(arguments[2]);
  // Entries past the end of a work list hold addresses of earlier calls, which the kernel never reads.
  Kernel known = of;
  if constexpr (requires { known.work.entries; }) {
    const auto& work = of.work;
    const std::size_t used =
        work.table != nullptr ? 0 : std::size_t{work.blocks} * (1u + work.ins + work.outs);
    std::fill(std::begin(known.work.entries) + static_cast<std::ptrdiff_t>(used),
              std::end(known.work.entries), std::decay_t<decltype(known.work.entries[0])>{});
  }
  return fake_cuda::library().call([&] {
    return fake_cuda::library().enqueue(
        stream,
        [=] {
          for (fake_cuda_block.x = 0; fake_cuda_block.x < grid.x; ++fake_cuda_block.x)
            for (fake_cuda_thread.x = 0; fake_cuda_thread.x < block.x; ++fake_cuda_thread.x)
              kernel(of, tiles, groups);
        },
        &known, sizeof known, true);
  });
}

extern "C" {

const char* cudaGetErrorName(cudaError_t) { return "an error of the fake"; }
const char* cudaGetErrorString(cudaError_t) { return "see its complaints"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2; // multiprocessors
  return cudaSuccess;
}

} // extern "C"
