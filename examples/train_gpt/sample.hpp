// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Text from a trained model of bytes.

#include "options.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;

/// @brief Draws an index with the probabilities that the scores have at the temperature of the options.
/// @param weights memory for as many numbers as there are scores
/// @param number the key of the random number
template <class Score>
[[nodiscard]] std::size_t draw(const Options& options, const Score* scores, std::vector<double>& weights,
                               std::uint64_t number) {
  constexpr std::uint64_t stream = ~std::uint64_t{0}; // separate from those of every parameter
  const auto best = static_cast<std::size_t>(std::max_element(scores, scores + weights.size()) - scores);
  if (options.temperature <= 0)
    return best;
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    total += weights[i] = std::exp(static_cast<double>(scores[i] - scores[best]) / options.temperature);
  double left = sw::unit_interval(sw::random_words({options.seed, stream}, number).word[0]) * total;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) < 0)
      return i;
  return best;
}

/// @brief Continues the prompt one byte at a time. Every data rank generates the same text: random numbers
/// are keyed only by position. Collective.
template <class Parts, class Batches>
[[nodiscard]] std::string sample_text(Parts& run, Batches& reader, const Options& options) {
  using Task = typename Parts::Task;
  using Whole = sw::Layout<3, typename Task::Rows>; // of cp and tp
  std::string text = options.prompt.empty() ? std::string("The ") : options.prompt;
  const auto sequence = static_cast<std::size_t>(run.config.sequence);
  const auto vocabulary = static_cast<std::size_t>(run.config.vocabulary);
  std::vector<double> weights(vocabulary);
  const int last_rank = run.schedule.placement().rank_of(run.schedule.stages() - 1, 0);
  for (int i = 0; i < options.sample; ++i) {
    const std::size_t shown = std::min(text.size(), sequence);
    const auto batches =
        reader.passes(1, options.data_ranks(), [&](std::size_t, auto ids, auto targets, auto starts) {
          std::fill(ids.begin(), ids.end(), 0);
          std::fill(starts.begin(), starts.end(), 0);
          std::fill(targets.begin(), targets.end(), -1);
          for (std::size_t t = 0; t < shown; ++t)
            ids[t] = static_cast<unsigned char>(text[text.size() - shown + t]);
        });
    std::array<std::uint8_t, 1> next{};
    run.training.runner().run_forwards(batches, [&](auto& last, auto in, const auto& batch, auto& saved) {
      const auto scores = sw::redistribute<Whole>(last.predict(std::move(in), batch, saved));
      const std::size_t place = sw::row_of<typename Task::Order>(
          shown - 1, static_cast<std::int64_t>(sequence), run.mesh.template extent<sw::axis::cp>());
      const auto values = sw::local_values(scores);
      next[0] = static_cast<std::uint8_t>(
          draw(options, values.data() + place * vocabulary, weights, static_cast<std::uint64_t>(i)));
    });
    run.pipeline.broadcast(next, last_rank);
    text.push_back(static_cast<char>(next[0]));
  }
  return text;
}

} // namespace train_gpt
