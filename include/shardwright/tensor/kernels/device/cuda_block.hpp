// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Block kernels on NVIDIA GPUs.
///
/// They are launched through CUDA, because Kokkos teams get at most 48 KiB of shared memory.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/kernel_notes.hpp>
#include <shardwright/tensor/kernels/device/block.hpp>

#include <Kokkos_Core.hpp>
#if defined(__CUDACC__)
#include <cub/block/block_reduce.cuh>
#endif
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

#if defined(__CUDACC__)

/// The calling thread's block.
struct CudaBlock {
  __device__ std::size_t index() const { return blockIdx.x; }
  __device__ unsigned warp() const { return threadIdx.x / static_cast<unsigned>(warp_threads); }
  __device__ unsigned char* shared() const {
    extern __shared__ __align__(128) unsigned char shardwright_shared_memory[];
    return shardwright_shared_memory;
  }
  __device__ void barrier() const { __syncthreads(); }
  template <int bytes> __device__ void copy(void* to, const void* from, bool inside) const {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (bytes == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(inside ? 16 : 0)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes),
                   "r"(inside ? bytes : 0)
                   : "memory");
  }
  __device__ void end_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int under_way> __device__ void wait_for_copies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(under_way) : "memory");
  }
};

/// As sum_over_block of any block, for its first thread only: CUB's tree over warps is the same in every run.
template <unsigned warps, class Number>
__device__ inline Number sum_over_block(const CudaBlock&, Number own, Number*) {
  using Reduce = cub::BlockReduce<Number, static_cast<int>(warps * warp_threads)>;
  __shared__ typename Reduce::TempStorage memory;
  const Number sum = Reduce(memory).Sum(own);
  __syncthreads(); // before the next one uses the memory
  return sum;
}

template <class Functor>
__global__ void __launch_bounds__(Functor::warps* static_cast<unsigned>(warp_threads),
                                  Functor::blocks_at_once) cuda_block_kernel(const Functor functor) {
  functor(CudaBlock{});
}

template <> struct BlockLauncher<Kokkos::Cuda> {
  static constexpr bool available = true;

  /// Of one block: 227 KiB on Hopper.
  [[nodiscard]] static std::size_t most_shared_bytes(const Kokkos::Cuda& execution) {
    return execution.cuda_device_prop().sharedMemPerBlockOptin;
  }
  template <class Functor>
  static void run(const Kokkos::Cuda& execution, std::size_t blocks, std::size_t shared_bytes,
                  const Functor& functor) {
    if (blocks == 0)
      return;
    require(blocks <= 0x7fffffff, "Kernel", "a launch must have fewer than 2^31 blocks (cut the batch).");
    const int device = execution.cuda_device();
    cudaError_t status = cudaSetDevice(device);
    if (status == cudaSuccess)
      status = allow<Functor>(device, shared_bytes);
    if (status == cudaSuccess) {
      Functor copy = functor;
      void* arguments[] = {&copy};
      status = cudaLaunchKernel(reinterpret_cast<const void*>(&cuda_block_kernel<Functor>),
                                dim3(static_cast<unsigned>(blocks)),
                                dim3(Functor::warps * static_cast<unsigned>(warp_threads)), arguments,
                                shared_bytes, execution.cuda_stream());
    }
    if (status != cudaSuccess)
      throw DeviceError(static_cast<int>(status),
                        std::string("Kernel: the launch must succeed, but CUDA says ") +
                            cudaGetErrorString(status) + " (look for an earlier error of the device).");
  }

private:
  /// Prepares the kernel for this much shared memory, unless earlier launches on the device needed as much.
  template <class Functor> [[nodiscard]] static cudaError_t allow(int device, std::size_t shared_bytes) {
    static std::array<std::atomic<std::size_t>, shardwright::detail::KernelNotes::most_devices> allowed{};
    static std::mutex more;
    std::atomic<std::size_t>& here = allowed[static_cast<std::size_t>(device)];
    if (shared_bytes <= here.load(std::memory_order_acquire) ||
        Functor::blocks_at_once * shared_bytes <= shared_bytes_everywhere)
      return cudaSuccess;
    const std::lock_guard lock(more); // a smaller limit must not replace a larger one
    if (shared_bytes <= here.load(std::memory_order_relaxed))
      return cudaSuccess;
    // The driver might otherwise give the cache memory that concurrent blocks need.
    cudaError_t status =
        cudaFuncSetAttribute(cuda_block_kernel<Functor>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
    if (status == cudaSuccess && shared_bytes > shared_bytes_everywhere)
      status = cudaFuncSetAttribute(cuda_block_kernel<Functor>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes));
    if (status == cudaSuccess)
      here.store(shared_bytes, std::memory_order_release);
    return status;
  }
};

#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
