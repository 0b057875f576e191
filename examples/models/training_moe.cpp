// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' decoders with experts, which ranks of ep own.

#include "moe_task.hpp"
#include "train_as.hpp"

namespace sw = shardwright;
using Target = sw::DefaultTarget;
using Owners = sw::AxisList<sw::axis::ep>;

static const models::CompiledTraining deepseek[] = {
    {{"moe", trainer::Precision::fp32, 0},
     &models::train_as<models::MoeTask<models::MoeFp32<Target>, Owners>>},
    {{"moe", trainer::Precision::fp64, 3},
     &models::train_as<models::MoeTask<models::MoeFp64<Target>, Owners>>}};
static const models::CompiledTraining mixtral[] = {
    {{"mixtral", trainer::Precision::fp32, 0},
     &models::train_as<models::MoeTask<models::MoeFp32<Target>, Owners>>},
    {{"mixtral", trainer::Precision::fp64, 3},
     &models::train_as<models::MoeTask<models::MoeFp64<Target>, Owners>>}};
