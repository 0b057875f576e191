// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs the test cases of the executable; the three mains share it.

namespace shardwright_test {

/// @brief Runs the test cases that the command line selects; returns the exit status.
int run_session(int argc, char** argv);

} // namespace shardwright_test
