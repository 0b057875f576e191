// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Noisy text for GPT-2.

#include "gpt2.hpp"
#include "trainer.hpp"

namespace models {

struct Gpt2Task {
  template <class Plan> using Model = Gpt2<Plan>;

  template <class> [[nodiscard]] static Gpt2Config config(const Options& options) {
    return {.recompute = {options.recompute}};
  }
  [[nodiscard]] static auto sample(const Gpt2Config& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return noisy_text(seed, number, config.vocabulary, config.sequence); };
  }
  template <class Model, class Mesh, class MakeSample>
  [[nodiscard]] static typename Model::Batch batch(const Mesh& mesh, const Gpt2Config& config,
                                                   const Rows& rows, MakeSample sample) {
    return load_text<typename Model::Batch>(mesh, config.sequence, rows, sample);
  }
};

} // namespace models
