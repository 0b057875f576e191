// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry run of train_models' classifier of sequences.

#include "encoder_task.hpp"

static const models::CompiledDryRun compiled({"encoder", "fp64", 3},
                                             &models::dry_run_as<models::EncoderTask, models::Fp64>);
