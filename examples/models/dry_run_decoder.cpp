// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry run of train_models' Llama-style decoder.

#include "decoder_task.hpp"

static const models::CompiledDryRun compiled({"decoder", "fp64", 3},
                                             &models::dry_run_as<models::DecoderTask, models::Fp64>);
