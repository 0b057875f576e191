// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief train_models' decoders with experts, which ranks of dp, ep and tp own together.

#include "moe_task.hpp"
#include "train_as.hpp"

namespace sw = shardwright;
using Target = sw::DefaultTarget;
using Owners = sw::AxisList<sw::axis::dp, sw::axis::ep, sw::axis::tp>;

static const models::CompiledTraining deepseek[] = {
    {{"moe-folded", trainer::Precision::fp32, 0},
     &models::train_as<models::MoeTask<models::MoeFp32<Target>, Owners>>},
    {{"moe-folded", trainer::Precision::fp64, 3},
     &models::train_as<models::MoeTask<models::MoeFp64<Target>, Owners>>}};
static const models::CompiledTraining mixtral[] = {
    {{"mixtral-folded", trainer::Precision::fp32, 0},
     &models::train_as<models::MoeTask<models::MoeFp32<Target>, Owners>>},
    {{"mixtral-folded", trainer::Precision::fp64, 3},
     &models::train_as<models::MoeTask<models::MoeFp64<Target>, Owners>>}};
