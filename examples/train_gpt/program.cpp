// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief What train_gpt and finetune do after their names.

#include "program.hpp"
#include "published.hpp"
#include "training.hpp"

#include <trainer/dry_run_report.hpp>
#include <trainer/program.hpp>
#include <trainer/verify.hpp>

#include <Kokkos_Core.hpp>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace train_gpt {

namespace sw = shardwright;

namespace {

int run(Program program, int argc, char** argv) {
  ParseResult parsed = parse(argc, argv, trainer::current_environment(), program);
  if (!parsed.options)
    return trainer::print_message(parsed);
  Options& options = *parsed.options;
  const Kokkos::ScopeGuard kokkos;
  if (options.dry_run)
    return trainer::report_dry_run(std::cout, options, options.dry_run_text(),
                                   [&](int rank) { return dry_run(options, rank); });
  require_training(options);
  if (options.verify)
    require_training(on_one_rank(options));
  const std::unique_ptr<const sw::TokenRows> dataset = read_dataset(options);
  settle_epochs(options, *dataset);
  std::optional<RunResult> first; // of the first rank
  const int code = trainer::run_ranks(
      options, options.configuration_text() + "data hash " + std::to_string(dataset->hash()) + "\n",
      [&](const sw::HostCommunicator& world) {
        RunResult result = train(world, options, *dataset, false);
        if (world.rank() == 0)
          first = std::move(result);
      });
  if (!first)
    return code;
  if (!first->sample.empty())
    std::cout << "--- sample ---\n" << first->sample << "\n--------------" << std::endl;
  if (!options.verify || first->stopped)
    return code;
  return trainer::verify(options,
                         options.target == Device::cuda ? " on the GPU from one rank of the host in fp32"
                                                        : " from one rank",
                         trainer::tolerance_of(options.precision), *first,
                         [&](const sw::HostCommunicator& alone, double rate_factor) {
                           Options repeated = on_one_rank(options);
                           trainer::repeat_steps(repeated, *first, rate_factor);
                           return train(alone, repeated, *dataset, true);
                         });
}

} // namespace

int run_program(Program program, int argc, char** argv) {
  return trainer::run_program(name_of(program).data(), [&] { return run(program, argc, argv); });
}

} // namespace train_gpt
