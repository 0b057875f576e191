// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over bfloat16, on a GPU.

#include "dry_run_as.hpp"

namespace sw = shardwright;

static const train_gpt::CompiledDryRun
    compiled({train_gpt::Precision::bf16, 0, false, train_gpt::Device::cuda},
             &train_gpt::dry_run_as<sw::bfloat16, sw::DataParallel, sw::AllToAllContext, sw::CudaTarget>);
