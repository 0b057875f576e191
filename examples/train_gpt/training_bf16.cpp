// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's model over bfloat16.

#include "trainer.hpp"

template train_gpt::RunResult train_gpt::train_as<shardwright::bfloat16, shardwright::DataParallel>(
    const shardwright::HostCommunicator&, const Options&, const shardwright::ByteDataset&, bool);
