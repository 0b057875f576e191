// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs of train_gpt that start from a published model.

#include "option_checks.hpp"
#include "options.hpp"

#include <shardwright/io/token_rows.hpp>

#include <memory>

namespace train_gpt {

/// @brief Interprets --lora and --lora-targets, whose names settle_published() checks.
void settle_adapters(Options& options, const std::string& sizes, const std::vector<std::string>& targets);

/// @brief The steps of --epochs, and what depends on them.
/// @throws UsageError if the data have no epochs, or the warmup is longer.
void settle_epochs(Options& options, const shardwright::TokenRows& data);

/// @brief Takes the sizes from --init DIR, and checks the options that belong to it and to --export.
/// @throws UsageError for contradictions.
/// @throws shardwright::DataError if config.json cannot be read, or describes a model that this program
/// cannot train.
void settle_published(Options& options, const IsGiven& given);

/// @brief The data of a run: bytes, or with --init the tokens of its tokenizer, with an end token after each
/// file if the model has one; or the conversations of its files.
/// @throws shardwright::DataError for files that cannot be read, have no text, or are not as a conversation
/// must be.
[[nodiscard]] std::unique_ptr<const shardwright::TokenRows> read_dataset(const Options& options);

} // namespace train_gpt
