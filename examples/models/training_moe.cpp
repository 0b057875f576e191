// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' decoders with experts, which ranks of ep own.

#include "moe_task.hpp"

namespace sw = shardwright;
using Task = models::MoeTask<sw::AxisList<sw::axis::ep>>;

static const models::CompiledTraining deepseek[] = {
    {{"moe", "fp32", 0}, &models::train_as<Task, models::MoeFp32>},
    {{"moe", "fp64", 3}, &models::train_as<Task, models::MoeFp64>}};
static const models::CompiledTraining mixtral[] = {
    {{"mixtral", "fp32", 0}, &models::train_as<Task, models::MoeFp32>},
    {{"mixtral", "fp64", 3}, &models::train_as<Task, models::MoeFp64>}};
