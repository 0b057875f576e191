// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' classifier of points.

#include "mlp_task.hpp"

static const models::CompiledTrainings<models::MlpTask> compiled("mlp");
