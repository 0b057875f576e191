// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Trains one of several models on any mesh.

#include "dump.hpp"
#include "options.hpp"
#include "training.hpp"

#include <shardwright/io/checked_output.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <exception>
#include <iostream>
#include <span>

namespace {

namespace sw = shardwright;

void run(const sw::HostCommunicator& world, const models::Options& options) {
  const bool reports = world.rank() == 0;
  models::Watch watch;
  watch.on_step = [&](const sw::StepReport& report) {
    if (reports)
      std::printf("step %lld loss %.15e gradient norm %.6e\n", static_cast<long long>(report.step),
                  report.loss, report.gradient_norm);
  };
  watch.on_loads = [&](std::span<const sw::ExpertLoadReport> layers) {
    if (reports)
      std::printf("  %s\n", sw::summary_of(layers).text().c_str());
  };
  const models::RunResult result = models::train(world, options, watch);
  if (!reports)
    return;
  if (!options.dump.empty())
    models::dump(options.dump, options, result);
  std::printf("%s\n", models::parameter_text(result.parameters).c_str());
}

} // namespace

int main(int argc, char** argv) {
  try {
    const models::ParseResult parsed = models::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("train_models", parsed.exit_code);
    }
    sw::kernels::use_single_threaded_blas();
    const Kokkos::ScopeGuard kokkos;
    const int code = sw::launch({.ranks = parsed.options->ranks()},
                                [&](const sw::HostCommunicator& world) { run(world, *parsed.options); });
    return sw::checked_output("train_models", code);
  } catch (const std::exception& error) {
    std::cerr << "train_models: " << error.what() << std::endl;
    return 1;
  }
}
