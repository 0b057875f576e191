// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry runs of train_gpt's models over float, gradients and optimizer state sharded.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun compiled({train_gpt::Precision::fp32, 2, false},
                                                &train_gpt::dry_run_as<float, sw::Zero2>);
