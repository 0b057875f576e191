// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over float, on a GPU.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun
    compiled({train_gpt::Precision::fp32, 0, false, train_gpt::Device::cuda},
             &train_gpt::dry_run_as<float, sw::DataParallel, sw::AllToAllContext, sw::CudaTarget>);
