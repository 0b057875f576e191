// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The weights that a run begins with.

#include <shardwright/io/checkpoint/block.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trainer {

/// @brief Opens the weights that a run without a checkpoint begins with, and appends lines about them to its
/// argument. A run with none begins with random weights.
using InitialWeights =
    std::function<std::shared_ptr<const shardwright::checkpoint::BlockSource>(std::vector<std::string>&)>;

} // namespace trainer
