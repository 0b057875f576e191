// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Small decoders to plan for.

#include <shardwright/plan/spec/model.hpp>

namespace plan_test {

/// @brief Without experts, of 1.4 billion parameters; 2 and 3 divide the heads.
inline constexpr shardwright::ModelSpec dense{.name = "dense",
                                              .layers = 12,
                                              .hidden = 3072,
                                              .heads = 24,
                                              .key_value_heads = 8,
                                              .feed_forward = 8192,
                                              .vocabulary = 32000};

/// @brief With 24 experts in all layers but the first.
inline constexpr shardwright::ModelSpec experts{
    .name = "experts",
    .layers = 9,
    .hidden = 4096,
    .heads = 16,
    .key_value_heads = 16,
    .feed_forward = 8192,
    .vocabulary = 64000,
    .experts = {.count = 24, .active = 4, .width = 4096, .leading_dense_layers = 1}};

} // namespace plan_test
