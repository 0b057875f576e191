// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Trains a byte-level language model on text files, on any mesh of data and tensor parallel ranks.

#include "checkpoints.hpp"
#include "dry_run.hpp"
#include "options.hpp"
#include "published.hpp"
#include "training.hpp"
#include "verify.hpp"

#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/comm/threads/transport.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace {

namespace sw = shardwright;

/// One rank's run; the first rank's result is kept.
void run(const sw::HostCommunicator& world, const train_gpt::Options& options, const sw::ByteDataset& dataset,
         std::optional<train_gpt::RunResult>& first) {
  sw::require_same_configuration(world, options.configuration_text() + "data hash " +
                                            std::to_string(dataset.hash()) + "\n");
  const bool linked = options.link.latency_seconds > 0 || options.link.bytes_per_second > 0;
  train_gpt::RunResult result =
      train_gpt::train(linked ? sw::simulated_link(world, options.link) : world, options, dataset, false);
  if (world.rank() == 0)
    first = std::move(result);
}

/// Repeats the run on one rank, after the ranks have ended: none of them waits for it.
int verify(const train_gpt::Options& options, const sw::ByteDataset& dataset,
           const train_gpt::RunResult& result) {
  std::cout << "verify: repeating the run on one rank" << std::endl;
  const sw::HostCommunicator alone = sw::thread_world(1).front();
  return train_gpt::report_differences(
      std::cout, options, result, train_gpt::train(alone, train_gpt::on_one_rank(options), dataset, true));
}

} // namespace

int main(int argc, char** argv) {
  try {
    const train_gpt::ParseResult parsed = train_gpt::parse(argc, argv, train_gpt::current_environment());
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("train_gpt", parsed.exit_code);
    }
    const train_gpt::Options& options = *parsed.options;
    sw::kernels::use_single_threaded_blas();
    const Kokkos::ScopeGuard kokkos;
    if (options.dry_run)
      return sw::checked_output("train_gpt", train_gpt::report_dry_run(std::cout, options));
    train_gpt::require_training(options);
    const sw::ByteDataset dataset = train_gpt::read_dataset(options);
    const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(options.deadline_seconds));
    std::optional<train_gpt::RunResult> first;
    const train_gpt::StopSignals stop(options.checkpoint);
    const int code = sw::launch({.ranks = options.ranks, .deadline = deadline},
                                [&](sw::HostCommunicator world) { run(world, options, dataset, first); });
    if (!first)
      return sw::checked_output("train_gpt", code);
    if (!first->sample.empty())
      std::cout << "--- sample ---\n" << first->sample << "\n--------------" << std::endl;
    return sw::checked_output("train_gpt",
                              options.verify && !first->stopped ? verify(options, dataset, *first) : code);
  } catch (const std::exception& error) {
    std::cerr << "train_gpt: " << error.what() << std::endl;
    return 1;
  }
}
