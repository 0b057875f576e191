// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A small decoder to plan for.

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

} // namespace plan_test
