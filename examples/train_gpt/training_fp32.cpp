// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over float.

#include "trainer.hpp"

template train_gpt::RunResult
train_gpt::train_as<float, shardwright::DataParallel>(const shardwright::HostCommunicator&, const Options&,
                                                      const shardwright::ByteDataset&, bool);
