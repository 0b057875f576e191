// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over float16.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun compiled({train_gpt::Precision::fp16, 0, false},
                                                &train_gpt::dry_run_as<sw::float16, sw::DataParallel>);
