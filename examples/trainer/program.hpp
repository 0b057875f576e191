// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The main function of a program that trains.

#include "options.hpp"
#include "run_result.hpp"

#include <shardwright/comm/host_communicator.hpp>

#include <functional>
#include <iostream>
#include <string>

namespace trainer {

/// @brief Runs `body`, which returns an exit code; turns an exception, or output that cannot be written, into
/// a message and the code 1.
[[nodiscard]] int run_program(const char* name, const std::function<int()>& body);

/// @brief Prints what the command line gave in place of options. @return its exit code
template <class Options> [[nodiscard]] int print_message(const Parsed<Options>& parsed) {
  (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
  return parsed.exit_code;
}

/// @brief Runs `rank` on each rank that the options ask for, over a simulated link if they name one.
/// @param configuration every setting that the ranks must share, one per line
/// @return the exit code of the ranks of this process
[[nodiscard]] int run_ranks(const RunOptions& options, const std::string& configuration,
                            const std::function<void(const shardwright::HostCommunicator&)>& rank);

/// @brief Repeats a run on one rank, after its ranks have ended, so that none of them waits for it, and
/// prints the differences; if they are large, repeats it once more to see what roundings come to.
/// @param reference, tolerance as of report_differences
/// @param on_one_rank repeats it, with the learning rate times a factor
/// @return 0 if the runs agree, else 1
[[nodiscard]] int
verify(const RunOptions& options, const std::string& reference, double tolerance, const RunResult& run,
       const std::function<RunResult(const shardwright::HostCommunicator&, double rate_factor)>& on_one_rank);

} // namespace trainer
