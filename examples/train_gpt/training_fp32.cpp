// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over float.

#include "trainer.hpp"

namespace train_gpt {

RunResult train_fp32(shardwright::HostCommunicator world, const Options& options,
                     const shardwright::ByteDataset& dataset, bool quiet) {
  return train_with<float>(world, options, dataset, quiet);
}

} // namespace train_gpt
