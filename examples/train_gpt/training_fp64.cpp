// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over double.

#include "trainer.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledTraining compiled({train_gpt::Precision::fp64, 0, false},
                                                  &train_gpt::train_as<double, sw::DataParallel>);
