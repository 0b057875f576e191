// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models with experts, over float.

#include "trainer.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledTraining
    compiled({train_gpt::Precision::fp32, 0, false, train_gpt::Device::host, true},
             [](const sw::HostCommunicator& world, const train_gpt::Options& options,
                const sw::ByteDataset& dataset, bool quiet) {
               return train_gpt::Trainer<sw::MoeLayouts<>, float>(world, options, dataset, quiet).run();
             });
