// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over bfloat16.

#include "trainer.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledTraining compiled({train_gpt::Precision::bf16, 0, false},
                                                  &train_gpt::train_as<sw::bfloat16, sw::DataParallel>);
