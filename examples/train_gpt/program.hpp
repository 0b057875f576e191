// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The main function of train_gpt and finetune.

#include "options.hpp"

namespace train_gpt {

/// @brief Trains as the command line says. @return the exit code
[[nodiscard]] int run_program(Program program, int argc, char** argv);

} // namespace train_gpt
