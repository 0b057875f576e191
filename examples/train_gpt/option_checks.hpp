// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of train_gpt taken together: defaults that follow from others, and contradictions.

#include "options.hpp"

#include <string>

namespace train_gpt {

/// @brief Uses a default model and batch that fit the mesh of a dry run if those of a training run would not.
void settle_dry_run(Options& options, const IsGiven& given);

/// @brief Checks the options of models with experts, whose stream is always split over tp.
/// @throws UsageError for such options with another model, and for combinations that the program does not
/// support with experts.
void settle_experts(Options& options, const IsGiven& given);

/// @brief Checks that the sizes are divisible by one another and by the mesh.
/// @throws UsageError with the nearest sizes that are.
void check_model(const Options& options);

/// @brief Parses the word after --recompute: a kind, or a kind and the number of layers from the first that
/// it is for.
/// @throws UsageError for anything else, or more layers than the model has.
[[nodiscard]] shardwright::Recomputation parse_recompute(const std::string& word, int layers);

/// @brief Fills in whichever of batch, microbatch and accumulation were not given.
/// @throws UsageError if nothing fits.
void settle_batch(Options& options, const IsGiven& given);

/// @brief Fills in the learning rate and its schedule.
/// @throws UsageError for contradictions.
void settle_training(Options& options, const IsGiven& given);

/// @brief Checks that the run writes no directory inside its data.
/// @throws UsageError for --checkpoint or --export in a directory of --data, which a resumed run reads again.
void check_outputs_outside_data(const Options& options, const IsGiven& given);

} // namespace train_gpt
