// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry run of train_models' GPT-2.

#include "gpt2_task.hpp"

static const models::CompiledDryRun compiled({"gpt2", "fp64", 3},
                                             &models::dry_run_as<models::Gpt2Task, models::Fp64>);
