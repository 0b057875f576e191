// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over float, with ring attention.

#include "trainer.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledTraining
    compiled({train_gpt::Precision::fp32, 0, true},
             &train_gpt::train_as<float, sw::DataParallel, sw::RingContext>);
