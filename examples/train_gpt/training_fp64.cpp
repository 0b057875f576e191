// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_gpt's models over double.

#include "trainer.hpp"

namespace train_gpt {

RunResult train_fp64(shardwright::HostCommunicator world, const Options& options,
                     const shardwright::ByteDataset& dataset, bool quiet) {
  return train_with<double>(world, options, dataset, quiet);
}

} // namespace train_gpt
