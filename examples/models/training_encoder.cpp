// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' classifier of sequences.

#include "encoder_task.hpp"

static const models::CompiledTrainings<models::EncoderTask> compiled("encoder");
