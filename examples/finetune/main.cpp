// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Adapts a published model to conversations, on any mesh: train_gpt with the defaults of that work.

#include <train_gpt/program.hpp>

int main(int argc, char** argv) { return train_gpt::run_program(train_gpt::Program::finetune, argc, argv); }
