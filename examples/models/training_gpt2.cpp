// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' GPT-2.

#include "gpt2_task.hpp"

static const models::CompiledTrainings<models::Gpt2Task> compiled("gpt2");
