// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Models that train_gpt writes as models are published.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>

namespace train_gpt {

/// @brief Writes the model whose blocks the ranks hold, in the precision of its weights, with the settings
/// and tokenizer of --init. Rank 0 holds all of it meanwhile. Collective.
/// @throws shardwright::DataError on rank 0 if it cannot be written.
void export_model(const shardwright::HostCommunicator& world, const Options& options,
                  const shardwright::checkpoint::Staging& blocks);

} // namespace train_gpt
