// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The measured device, and the timing of calls on its stream.

#include "timing.hpp"

#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace gpu {

namespace sw = shardwright;

#if defined(KOKKOS_ENABLE_CUDA)
using Device = sw::CudaTarget;
#else
using Device = sw::DefaultTarget;
#endif
using Execution = Device::execution_space;
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;

/// @brief Whether there is a device to measure.
[[nodiscard]] inline bool has_device() {
#if defined(KOKKOS_ENABLE_CUDA)
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
#else
  return true;
#endif
}

/// @brief Name, memory and versions in words.
[[nodiscard]] inline std::string device_text() {
#if defined(KOKKOS_ENABLE_CUDA)
  cudaDeviceProp card{};
  int device = 0, driver = 0, runtime = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&card, device) != cudaSuccess ||
      cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
    return "unknown";
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  return std::string(card.name) + ", " + std::to_string(card.totalGlobalMem >> 20) + " MiB, " +
         std::to_string(card.multiProcessorCount) + " multiprocessors, L2 " +
         std::to_string(card.l2CacheSize >> 20) + " MiB, CUDA " + version(runtime) + ", driver for CUDA " +
         version(driver);
#else
  return "no GPU: the host stands in";
#endif
}

/// @brief Bytes of the device's memory that are free.
[[nodiscard]] inline std::size_t free_bytes() {
#if defined(KOKKOS_ENABLE_CUDA)
  std::size_t available = 0, total = 0;
  return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
#else
  return std::size_t{4} << 30;
#endif
}

/// @brief Seconds of `count` calls that follow one another on the stream, until the device has done them.
template <class Work>
[[nodiscard]] double seconds_of_calls(const Execution& execution, std::size_t count, const Work& work) {
  execution.fence();
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < count; ++i)
    work();
  execution.fence();
  return seconds_since(begin);
}

/// @brief Calls that together take about `seconds`, at most 1000. Warms up.
template <class Work>
[[nodiscard]] std::size_t calls_for(double seconds, const Execution& execution, const Work& work) {
  static_cast<void>(seconds_of_calls(execution, 1, work));
  const double two = seconds_of_calls(execution, 2, work);
  return static_cast<std::size_t>(std::clamp(2 * seconds / std::max(two, 1e-7), 1.0, 1000.0));
}

/// @brief Seconds of one call: the median over turns of many calls in a row, so that the launch of a call is
/// hidden behind the call before.
template <class Work>
[[nodiscard]] double seconds_of(const Execution& execution, int turns, const Work& work) {
  const std::size_t count = calls_for(0.01, execution, work);
  std::vector<double> times;
  for (int turn = 0; turn < turns; ++turn)
    times.push_back(seconds_of_calls(execution, count, work) / static_cast<double>(count));
  return median(times);
}

} // namespace gpu
