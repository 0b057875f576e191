// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The dry runs of train_gpt's models with experts, over float.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun
    compiled({train_gpt::Precision::fp32, 0, false, train_gpt::Device::host, true},
             [](const train_gpt::Options& options, int rank) {
               return sw::dry_run(options.ranks, rank, [&](const sw::HostCommunicator& world) {
                 train_gpt::count_steps<sw::MoeLayouts<>, float, sw::DefaultTarget>(world, options);
               });
             });
