// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over float, with ring attention.

#include "trainer.hpp"

template train_gpt::RunResult train_gpt::train_as<float, shardwright::DataParallel, shardwright::RingContext>(
    const shardwright::HostCommunicator&, const Options&, const shardwright::ByteDataset&, bool);
