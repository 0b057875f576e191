// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Trains one of several models on any mesh.

#include "dump.hpp"
#include "options.hpp"
#include "training.hpp"

#include <trainer/dry_run_report.hpp>
#include <trainer/program.hpp>
#include <trainer/verify.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace {

namespace sw = shardwright;

/// The tolerance for 16 bits relies on the mean over many tokens; these models have a sixteenth as many
/// samples.
double tolerance_of(const models::Options& options) {
  const bool few = options.model == "mlp" || options.model == "encoder";
  return trainer::tolerance_of(options.precision) * (few && is_narrow(options.precision) ? 6 : 1);
}

models::Options on_one_rank(models::Options options) {
  put_on_one_rank(options);
  options.dump.clear();
  return options;
}

int run(int argc, char** argv) {
  const models::ParseResult parsed = models::parse(argc, argv, trainer::current_environment());
  if (!parsed.options)
    return trainer::print_message(parsed);
  const models::Options& options = *parsed.options;
  const Kokkos::ScopeGuard kokkos;
  if (options.dry_run)
    return trainer::report_dry_run(std::cout, options, ", batch " + std::to_string(options.batch),
                                   [&](int rank) { return models::dry_run(options, rank); });
  std::optional<models::RunResult> first; // of the first rank
  const int code =
      trainer::run_ranks(options, options.configuration_text(), [&](const sw::HostCommunicator& world) {
        models::RunResult result = models::train(world, options, false);
        if (world.rank() == 0)
          first = std::move(result);
      });
  if (!first)
    return code;
  if (first->stopped) {
    if (!options.dump.empty())
      std::fprintf(stderr, "train_models: stopped before its last step, so nothing was written to %s\n",
                   options.dump.c_str());
    return code;
  }
  if (!options.dump.empty())
    models::dump(options.dump, options, *first);
  std::printf("%s\n", models::parameter_text(first->parameters).c_str());
  std::fflush(stdout);
  if (!options.verify)
    return code;
  return trainer::verify(options, " from one rank", tolerance_of(options), *first,
                         [&](const sw::HostCommunicator& alone, double rate_factor) {
                           models::Options repeated = on_one_rank(options);
                           trainer::repeat_steps(repeated, *first, rate_factor);
                           return models::train(alone, repeated, true);
                         });
}

} // namespace

int main(int argc, char** argv) {
  return trainer::run_program("train_models", [&] { return run(argc, argv); });
}
