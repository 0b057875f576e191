// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Starts the ranks of a run, and repeats it on one.

#include "program.hpp"
#include "checkpoints.hpp"
#include "verify.hpp"

#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/comm/threads/transport.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>

#include <chrono>
#include <exception>

namespace trainer {

namespace sw = shardwright;

int run_program(const char* name, const std::function<int()>& body) {
  try {
    sw::kernels::use_single_threaded_blas();
    return sw::checked_output(name, body());
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 1;
  }
}

int run_ranks(const RunOptions& options, const std::string& configuration,
              const std::function<void(const sw::HostCommunicator&)>& rank) {
  const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.deadline_seconds));
  const bool linked = options.link.latency_seconds > 0 || options.link.bytes_per_second > 0;
  const StopSignals stop(options);
  return sw::launch({.ranks = options.ranks, .deadline = deadline}, [&](sw::HostCommunicator world) {
    sw::require_same_configuration(world, configuration);
    rank(linked ? sw::simulated_link(world, options.link) : world);
  });
}

int verify(const RunOptions& options, const std::string& reference, double tolerance, const RunResult& run,
           const std::function<RunResult(const sw::HostCommunicator&, double rate_factor)>& on_one_rank) {
  const auto repeat = [&](const char* how, double rate_factor) {
    std::cout << "verify: repeating the run on one rank" << how << std::endl;
    return on_one_rank(sw::thread_world(1).front(), rate_factor);
  };
  if (options.reproducible)
    return report_bits(std::cout, run, repeat("", 1));
  return report_differences(std::cout, options, reference, tolerance, run, repeat("", 1), [&] {
    return repeat(" with another rounding of the learning rate", nearby_rate(options.precision));
  });
}

} // namespace trainer
