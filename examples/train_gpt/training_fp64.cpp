// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over double.

#include "trainer.hpp"

template train_gpt::RunResult
train_gpt::train_as<double, shardwright::DataParallel>(const shardwright::HostCommunicator&, const Options&,
                                                       const shardwright::ByteDataset&, bool);
