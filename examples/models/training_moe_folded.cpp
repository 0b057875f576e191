// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' decoders with experts, which ranks of dp, ep and tp own together.

#include "moe_task.hpp"

namespace sw = shardwright;
using Task = models::MoeTask<sw::AxisList<sw::axis::dp, sw::axis::ep, sw::axis::tp>>;

static const models::CompiledTraining deepseek[] = {
    {{"moe-folded", "fp32", 0}, &models::train_as<Task, models::MoeFp32>},
    {{"moe-folded", "fp64", 3}, &models::train_as<Task, models::MoeFp64>}};
static const models::CompiledTraining mixtral[] = {
    {{"mixtral-folded", "fp32", 0}, &models::train_as<Task, models::MoeFp32>},
    {{"mixtral-folded", "fp64", 3}, &models::train_as<Task, models::MoeFp64>}};
