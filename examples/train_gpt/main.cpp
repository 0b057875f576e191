// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Trains a byte-level language model on text files, on any mesh.

#include "options.hpp"
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

namespace {

namespace sw = shardwright;

int run(int argc, char** argv) {
  train_gpt::ParseResult parsed = train_gpt::parse(argc, argv, trainer::current_environment());
  if (!parsed.options)
    return trainer::print_message(parsed);
  train_gpt::Options& options = *parsed.options;
  const Kokkos::ScopeGuard kokkos;
  if (options.dry_run)
    return trainer::report_dry_run(std::cout, options, options.dry_run_text(),
                                   [&](int rank) { return train_gpt::dry_run(options, rank); });
  train_gpt::require_training(options);
  if (options.verify)
    train_gpt::require_training(train_gpt::on_one_rank(options));
  const std::unique_ptr<const sw::TokenRows> dataset = train_gpt::read_dataset(options);
  train_gpt::settle_epochs(options, *dataset);
  std::optional<train_gpt::RunResult> first; // of the first rank
  const int code = trainer::run_ranks(
      options, options.configuration_text() + "data hash " + std::to_string(dataset->hash()) + "\n",
      [&](const sw::HostCommunicator& world) {
        train_gpt::RunResult result = train_gpt::train(world, options, *dataset, false);
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
                         options.target == train_gpt::Device::cuda
                             ? " on the GPU from one rank of the host in fp32"
                             : " from one rank",
                         trainer::tolerance_of(options.precision), *first,
                         [&](const sw::HostCommunicator& alone, double rate_factor) {
                           train_gpt::Options repeated = train_gpt::on_one_rank(options);
                           trainer::repeat_steps(repeated, *first, rate_factor);
                           return train_gpt::train(alone, repeated, *dataset, true);
                         });
}

} // namespace

int main(int argc, char** argv) {
  return trainer::run_program("train_gpt", [&] { return run(argc, argv); });
}
