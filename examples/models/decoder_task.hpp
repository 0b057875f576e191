// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Noisy text for the library's Llama-style decoder.

#include "task.hpp"

#include <shardwright/nn/decoder.hpp>

namespace models {

template <class Plan> struct DecoderTask : TextTask {
  using Model = sw::Decoder<sw::DecoderLayouts<true, typename Plan::zero>, typename Plan::element,
                            typename Plan::target>;

  [[nodiscard]] static sw::DecoderConfig config(const Options& options) {
    return {.layers = 4,
            .width = 32,
            .heads = 8,
            .kv_heads = 4,
            .hidden = 48,
            .vocabulary = 32,
            .sequence = 16,
            .initial_deviation = 0.1,
            .recompute = options.recompute};
  }
};

} // namespace models
