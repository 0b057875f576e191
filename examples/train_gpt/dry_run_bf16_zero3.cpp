// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over bfloat16, all model state sharded.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun compiled({train_gpt::Precision::bf16, 3, false},
                                                &train_gpt::dry_run_as<sw::bfloat16, sw::Zero3>);
