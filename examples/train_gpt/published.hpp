// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs of train_gpt that start from a published model, and models that they export.

#include "option_checks.hpp"
#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/byte_dataset.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>

namespace train_gpt {

/// @brief Takes the sizes from --init DIR, and checks the options that belong to it and to --export.
/// @throws UsageError for contradictions.
/// @throws shardwright::DataError if config.json cannot be read, or describes a model that this program
/// cannot train.
void settle_published(Options& options, const IsGiven& given);

/// @brief The data of a run: bytes, or with --init the tokens of its tokenizer, with an end token after each
/// file if the model has one.
/// @throws shardwright::DataError for files that cannot be read, or have no text.
[[nodiscard]] shardwright::ByteDataset read_dataset(const Options& options);

/// @brief Writes the model whose blocks the ranks hold, in the precision of its weights, with the settings
/// and tokenizer of --init. Rank 0 holds all of it meanwhile. Collective.
/// @throws shardwright::DataError on rank 0 if it cannot be written.
void export_model(const shardwright::HostCommunicator& world, const Options& options,
                  const shardwright::checkpoint::Staging& blocks);

} // namespace train_gpt
