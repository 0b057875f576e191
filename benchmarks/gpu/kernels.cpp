// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Every kernel of a training step on the device.

#include "device.hpp"
#include "parts.hpp"
#include "step_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace gpu {

void measure_kernels(const Options& options, const Rates& rates, Report& report) {
  step_kernels::Sizes sizes = options.model;
  // The largest are the logits, their gradient's table and the two halves of SwiGLU with their gradients.
  const auto need = [&] {
    const double tokens = static_cast<double>(sizes.batch * sizes.sequence);
    return 2 * tokens * static_cast<double>(sizes.vocabulary + 8 * sizes.hidden + 24 * sizes.width);
  };
  while (sizes.batch > 1 && need() > 0.6 * static_cast<double>(free_bytes()))
    sizes.batch /= 2;
  const step_kernels::StepKernels<Device, sw::bfloat16> step(sizes);
  report.note("kernels", std::to_string(sizes.batch) + " sequences of " + std::to_string(sizes.sequence) +
                             " tokens in bfloat16; bytes count every input once and every output once");
  std::printf("kernels, %zu sequences of %zu, bfloat16\n%-22s %6s %10s %10s %9s %9s\n", sizes.batch,
              sizes.sequence, "kernel", "calls", "ms", "GB/s", "of copy", "TFLOP/s");
  double whole = 0;
  double predicted = 0;
  for (const step_kernels::StepKernel& kernel : step.list()) {
    const double seconds = seconds_of(step.execution(), options.turns, kernel.run);
    // The roofline: no kernel is faster than its bytes at the copy rate, nor than its operations at the
    // matrix rate.
    const double least = std::max(kernel.bytes / rates.copy, kernel.flops / rates.bfloat);
    whole += kernel.calls * seconds;
    predicted += kernel.calls * least;
    report.add(
        {"step by kernels", kernel.name, 1e3 * kernel.calls * seconds, "ms", 0, 1e3 * kernel.calls * least});
    const double share = kernel.bytes / seconds / rates.copy;
    const double flops = kernel.flops / seconds;
    const bool memory_bound = kernel.flops == 0;
    std::printf("%-22s %6.0f %10.4f %10.1f", kernel.name.c_str(), kernel.calls, 1e3 * seconds,
                1e-9 * kernel.bytes / seconds);
    if (memory_bound) {
      std::printf(" %8.0f%%\n", 100 * share);
      report.add({"kernels", kernel.name, 100 * share, "% of the copy rate", 80});
    } else {
      std::printf(" %9s %9.1f\n", "", 1e-12 * flops);
      report.add(
          {"kernels", kernel.name, 1e-12 * flops,
           "TFLOP/s, " + std::to_string(std::lround(100 * flops / rates.bfloat)) + "% of the matrix rate"});
    }
  }
  report.add({"step by kernels", "all", 1e3 * whole, "ms", 0, 1e3 * predicted});
  std::printf("all kernels of a step: %.3f ms, %.3f ms at the card's rates\n\n", 1e3 * whole,
              1e3 * predicted);
}

} // namespace gpu
