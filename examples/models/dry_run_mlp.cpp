// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry run of train_models' classifier of points.

#include "mlp_task.hpp"

static const models::CompiledDryRun compiled({"mlp", "fp64", 3},
                                             &models::dry_run_as<models::MlpTask, models::Fp64>);
