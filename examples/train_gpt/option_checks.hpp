// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of train_gpt taken together: defaults that follow from others, and contradictions.

#include "options.hpp"

#include <functional>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief Returns whether an option, such as "--batch", is on the command line.
using IsGiven = std::function<bool(const char*)>;

/// @brief Makes ranks, mesh and launcher agree.
/// @throws UsageError with meshes that fit, if they do not.
void settle_ranks(Options& options, const IsGiven& given, const Environment& environment);

/// @brief Reads the ranks of a dry run, and uses a default model and batch that fit its mesh if those of a
/// training run would not.
/// @throws UsageError for other ranks than the mesh has, or options of a dry run without one.
void settle_dry_run(Options& options, const std::string& ranks, const IsGiven& given);

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

/// @brief Checks that the schedule allows the mesh and the microbatches.
/// @throws UsageError with the nearest that it does.
void settle_schedule(const Options& options, const IsGiven& given);

/// @brief Fills in the learning rate and its schedule.
/// @throws UsageError for contradictions.
void settle_training(Options& options, const IsGiven& given);

/// @brief Checks the options that belong to --checkpoint.
/// @throws UsageError for contradictions.
void settle_checkpoints(const Options& options, const IsGiven& given);

} // namespace train_gpt
