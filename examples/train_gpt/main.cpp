// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Trains a language model on text files, or a published one further, on any mesh.

#include "program.hpp"

int main(int argc, char** argv) { return train_gpt::run_program(train_gpt::Program::train_gpt, argc, argv); }
