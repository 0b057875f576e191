// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sorts and counts choices of experts on NVIDIA GPUs by CUB.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>

#include <Kokkos_Core.hpp>
#if !defined(SHARDWRIGHT_COMPILED_DEVICE)
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#endif
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// CUB's radix sort is stable, and its histogram adds integers, so both are the same in every run. The
/// functions are templates so that only units that call them compile its kernels.
template <> struct LibraryOrder<Kokkos::Cuda> {
  static constexpr bool available = true;

  template <class Cuda>
  [[nodiscard]] static std::size_t bytes(const Cuda& execution, std::size_t pairs, std::size_t bins) {
    std::size_t of_sort = 0;
    std::size_t of_counts = 0;
    call(execution, pairs, bins, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, of_sort, of_counts);
    return std::max(of_sort, of_counts);
  }
  template <class Cuda>
  static void sort(const Cuda& execution, std::size_t pairs, std::size_t bins, const std::int32_t* keys,
                   std::int32_t* sorted, const std::int32_t* numbers, std::int32_t* order,
                   std::int32_t* counts, void* memory) {
    // CUB must be passed the same number of bytes that it asked for.
    std::size_t of_sort = 0;
    std::size_t of_counts = 0;
    call(execution, pairs, bins, keys, sorted, numbers, order, counts, nullptr, of_sort, of_counts);
    call(execution, pairs, bins, keys, sorted, numbers, order, counts, memory, of_sort, of_counts);
  }

private:
  template <class Cuda>
  static void call(const Cuda& execution, std::size_t pairs, std::size_t bins, const std::int32_t* keys,
                   std::int32_t* sorted, const std::int32_t* numbers, std::int32_t* order,
                   std::int32_t* counts, void* memory, std::size_t& of_sort, std::size_t& of_counts);
  static void check(cudaError_t status) {
    if (status != cudaSuccess)
      throw DeviceError(static_cast<int>(status),
                        std::string("dispatch: sorting the choices must succeed, but CUDA says ") +
                            cudaGetErrorString(status) + " (look for an earlier error of the device).");
  }
};

#if defined(SHARDWRIGHT_COMPILED_DEVICE) // the target shardwright::compiled has the kernels
extern template void LibraryOrder<Kokkos::Cuda>::call<Kokkos::Cuda>(const Kokkos::Cuda&, std::size_t,
                                                                    std::size_t, const std::int32_t*,
                                                                    std::int32_t*, const std::int32_t*,
                                                                    std::int32_t*, std::int32_t*, void*,
                                                                    std::size_t&, std::size_t&);
#else
template <class Cuda>
void LibraryOrder<Kokkos::Cuda>::call(const Cuda& execution, std::size_t pairs, std::size_t bins,
                                      const std::int32_t* keys, std::int32_t* sorted,
                                      const std::int32_t* numbers, std::int32_t* order, std::int32_t* counts,
                                      void* memory, std::size_t& of_sort, std::size_t& of_counts) {
  cudaSetDevice(execution.cuda_device());
  const cudaStream_t stream = execution.cuda_stream();
  const auto count = static_cast<std::int32_t>(pairs);
  const auto used = static_cast<std::int32_t>(bins);
  check(cub::DeviceRadixSort::SortPairs(memory, of_sort, keys, sorted, numbers, order, count, 0,
                                        static_cast<int>(std::bit_width(bins - 1)), stream));
  check(cub::DeviceHistogram::HistogramEven(memory, of_counts, keys, counts, used + 1, std::int32_t{0}, used,
                                            count, stream));
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
