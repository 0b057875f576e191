// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures a device: its rates, this library's kernels, collectives of thread ranks that share it,
/// transitions, and a training step at GPT-2 124M size against PyTorch. Exits with code 77 if there is no
/// GPU.

#include "device.hpp"
#include "parts.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  const gpu::ParseResult parsed = gpu::parse(argc, argv);
  if (!parsed.options) {
    std::fputs(parsed.message.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  const gpu::Options& options = *parsed.options;
  if (!gpu::has_device()) {
    std::puts("skipped: it needs an NVIDIA GPU");
    return 77;
  }
  const Kokkos::ScopeGuard kokkos;
  try {
    gpu::Report report;
    report.note("device", gpu::device_text());
    std::printf("%s\n", gpu::device_text().c_str());
    const gpu::Rates rates = gpu::measure_rates(options, report);
    const auto wanted = [&](const char* part) {
      return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
    };
    if (wanted("kernels"))
      gpu::measure_kernels(options, rates, report);
    if (wanted("collectives"))
      gpu::measure_collectives(options, rates, report);
    if (wanted("transitions"))
      gpu::measure_transitions(options, rates, report);
    if (wanted("training"))
      gpu::measure_training(options, rates, report);
    if (!options.json.empty())
      report.write(options.json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu: %s\n", error.what());
    return 1;
  }
  return 0;
}
