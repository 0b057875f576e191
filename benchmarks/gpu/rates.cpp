// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The card's copy rate and matrix rates.

#include "device.hpp"
#include "parts.hpp"

#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/kernels/random.hpp>

#include <cstdint>
#include <cstdio>

namespace gpu {

namespace {

namespace kernels = sw::kernels;

/// Operations per second of C = A B on random numbers; zeros would run faster than real data.
template <class Element> double matrix_rate(const Execution& execution, std::size_t n, int turns) {
  using Matrix = Kokkos::View<Element**, Kokkos::LayoutRight, Device::memory_space>;
  const Matrix a("a", n, n), b("b", n, n), c("c", n, n);
  kernels::fill_normal(execution, a, {{0, 0}, {n, n}}, {3, 1}, 0.0, 1.0);
  kernels::fill_normal(execution, b, {{0, 0}, {n, n}}, {3, 2}, 0.0, 1.0);
  const double seconds = seconds_of(execution, turns, [&] {
    kernels::matmul(execution, a, kernels::Transpose::no, b, kernels::Transpose::no, c);
  });
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / seconds;
}

/// Bytes read plus bytes written per second.
double copy_rate(const Execution& execution, std::size_t bytes, int turns) {
  using Words = Kokkos::View<std::uint64_t*, Kokkos::LayoutRight, Device::memory_space>;
  const Words from("from", bytes / 8), to("to", bytes / 8);
  Kokkos::deep_copy(execution, from, std::uint64_t{0x9e3779b97f4a7c15});
  const double seconds = seconds_of(execution, turns, [&] { Kokkos::deep_copy(execution, to, from); });
  return 2 * static_cast<double>(bytes) / seconds;
}

} // namespace

Rates measure_rates(const Options& options, Report& report) {
  const Execution execution = Device::make_execution_space();
  Rates rates;
  rates.copy = copy_rate(execution, options.copy_bytes, options.turns);
  rates.bfloat = matrix_rate<sw::bfloat16>(execution, options.matrix, options.turns);
  kernels::use_tf32(true);
  rates.tf32 = matrix_rate<float>(execution, options.matrix, options.turns);
  kernels::use_tf32(false);
  rates.single = matrix_rate<float>(execution, options.matrix, options.turns);
  report.add({"rates", "copy within the device, bytes read and written", 1e-9 * rates.copy, "GB/s"});
  report.add({"rates", "matrix products in bfloat16", 1e-12 * rates.bfloat, "TFLOP/s"});
  report.add({"rates", "matrix products in TF32", 1e-12 * rates.tf32, "TFLOP/s"});
  report.add({"rates", "matrix products in float", 1e-12 * rates.single, "TFLOP/s"});
  std::printf("copy %.1f GB/s; matrix products of %zu: bfloat16 %.2f, TF32 %.2f, float %.2f TFLOP/s\n\n",
              1e-9 * rates.copy, options.matrix, 1e-12 * rates.bfloat, 1e-12 * rates.tf32,
              1e-12 * rates.single);
  return rates;
}

} // namespace gpu
