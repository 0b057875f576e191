// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Noisy text for GPT-2.

#include "gpt2.hpp"
#include "task.hpp"

namespace models {

template <class Plan> struct Gpt2Task : TextTask {
  using Model = Gpt2<Plan>;

  [[nodiscard]] static Gpt2Config config(const Options& options) { return {.recompute = options.recompute}; }
};

} // namespace models
