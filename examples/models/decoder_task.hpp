// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Noisy text for the library's Llama-style decoder.

#include "trainer.hpp"

#include <shardwright/nn/decoder.hpp>

namespace models {

struct DecoderTask {
  template <class Plan>
  using Model = sw::Decoder<sw::DecoderLayouts<true, typename Plan::zero>, typename Plan::element,
                            typename Plan::target>;

  template <class> [[nodiscard]] static sw::DecoderConfig config(const Options& options) {
    return {.layers = 4,
            .width = 32,
            .heads = 8,
            .kv_heads = 4,
            .hidden = 48,
            .vocabulary = 32,
            .sequence = 16,
            .initial_deviation = 0.1,
            .recompute = {options.recompute}};
  }
  [[nodiscard]] static auto sample(const sw::DecoderConfig& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return noisy_text(seed, number, config.vocabulary, config.sequence); };
  }
  template <class Model, class Mesh, class MakeSample>
  [[nodiscard]] static typename Model::Batch batch(const Mesh& mesh, const sw::DecoderConfig& config,
                                                   const Rows& rows, MakeSample sample) {
    return load_text<typename Model::Batch>(mesh, config.sequence, rows, sample);
  }
};

} // namespace models
