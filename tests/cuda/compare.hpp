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
#include <string>
#include <string_view>
#include <utility>
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

/// @brief Results of one target, each with a name.
class Results {
public:
  struct Named {
    std::string name;
    std::vector<double> numbers;
  };
  template <class Numbers> void add(std::string name, const Numbers& numbers) {
    all_.push_back({std::move(name), {numbers.begin(), numbers.end()}});
  }
  [[nodiscard]] const std::vector<Named>& all() const { return all_; }

private:
  std::vector<Named> all_;
};

/// @brief Compares the device's results with the host's, one after the other, and prints each at once: if the
/// next one ends the program, the last line says where it was.
class Comparison {
public:
  /// @param host must outlive it
  Comparison(std::string what, const Results& host, double tolerance)
      : what_(std::move(what)), host_(host), tolerance_(tolerance) {}

  void add(const std::string& name, const std::vector<double>& device) {
    const auto& wanted = host_.all();
    const double difference = count_ < wanted.size() && wanted[count_].name == name
                                  ? largest_difference(device, wanted[count_].numbers)
                                  : std::numeric_limits<double>::infinity();
    ++count_;
    numbers_ += device.size();
    const bool right = difference <= tolerance_;
    wrong_ += right ? 0 : 1;
    std::printf("%s: %s%s: %zu numbers, largest difference %.3g\n", what_.c_str(),
                right ? "" : "WRONG: ", name.c_str(), device.size(), difference);
    std::fflush(stdout);
    if (count_ == 1 || difference > largest_) {
      largest_ = difference;
      worst_ = name;
    }
  }
  /// @brief Whether all were there and agreed; prints the worst one.
  [[nodiscard]] bool sound() const {
    std::printf("%s: %zu of %zu results, %zu numbers, %zu wrong; the worst is %s, %.3g, allowed %.3g\n",
                what_.c_str(), count_, host_.all().size(), numbers_, wrong_, worst_.c_str(), largest_,
                tolerance_);
    return wrong_ == 0 && numbers_ > 0 && count_ == host_.all().size();
  }

private:
  std::string what_;
  const Results& host_;
  double tolerance_;
  std::size_t count_ = 0, numbers_ = 0, wrong_ = 0;
  double largest_ = 0;
  std::string worst_ = "none";
};

/// @brief Whether the device's results agree with the host's; prints the worst and all that do not.
[[nodiscard]] inline bool agrees(const std::string& what, const Results& device, const Results& host,
                                 double tolerance) {
  Comparison comparison(what, host, tolerance);
  for (const Results::Named& result : device.all())
    comparison.add(result.name, result.numbers);
  return comparison.sound();
}

/// @brief The same for a single result.
[[nodiscard]] inline bool agrees(const std::string& what, const std::vector<double>& device,
                                 const std::vector<double>& host, double tolerance) {
  Results from, to;
  from.add(what, device);
  to.add(what, host);
  return agrees(what, from, to, tolerance);
}

/// @brief Whether the device is an interpreter, on which no kernel takes time while the host goes on.
[[nodiscard]] inline bool interpreted() {
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
         std::string_view(properties.name) == "interpreter of PTX";
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
