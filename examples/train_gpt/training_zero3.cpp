// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over float, all model state sharded.

#include "trainer.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledTraining compiled({train_gpt::Precision::fp32, 3, false},
                                                  &train_gpt::train_as<float, sw::Zero3>);
