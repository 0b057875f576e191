// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the device programs: one computation on a host target and on the device, whose
/// results are compared.

#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <vector>

namespace cuda_test {

namespace sw = shardwright;

using Host = sw::HostTarget<Kokkos::Serial>;
using Device = sw::CudaTarget;

/// @brief The largest |a - b| / (1 + |b|); infinite if the lengths differ, or if two numbers are not finite
/// and not the same.
[[nodiscard]] inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double largest = a.size() == b.size() ? 0 : infinity;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const bool both_finite = std::isfinite(a[i]) && std::isfinite(b[i]);
    if (!both_finite && a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i])))
      return infinity;
    if (both_finite)
      largest = std::max(largest, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
  }
  return largest;
}

/// @brief Whether the device's results agree with the host's; prints the difference.
[[nodiscard]] inline bool agrees(const char* what, const std::vector<double>& device,
                                 const std::vector<double>& host, double tolerance) {
  const double difference = largest_difference(device, host);
  std::printf("%s: %zu numbers, largest difference %.3g, allowed %.3g\n", what, host.size(), difference,
              tolerance);
  return !host.empty() && difference <= tolerance;
}

/// @brief The main of a device program: 77, skipped, without a GPU; else 0 if `check()` is true.
template <class Check> int device_program(int argc, char** argv, const Check& check) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: it needs an NVIDIA GPU");
    return 77;
  }
  const Kokkos::ScopeGuard kokkos(argc, argv);
  return check() ? 0 : 1;
}

} // namespace cuda_test
