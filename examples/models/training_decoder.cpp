// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' Llama-style decoder.

#include "decoder_task.hpp"

static const models::CompiledTrainings<models::DecoderTask> compiled("decoder");
