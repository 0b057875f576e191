// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Text from a model in training: bytes after a prompt, or answers to questions.

#include "options.hpp"
#include "questions.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;

/// @brief Draws an index with the probabilities that the scores have at a temperature; 0: the greatest.
/// @param weights memory for as many numbers as there are scores
/// @param number the key of the random number
template <class Score>
[[nodiscard]] std::size_t draw(std::uint64_t seed, double temperature, const Score* scores,
                               std::vector<double>& weights, std::uint64_t number) {
  constexpr std::uint64_t stream = ~std::uint64_t{0}; // separate from those of every parameter
  const auto best = static_cast<std::size_t>(std::max_element(scores, scores + weights.size()) - scores);
  if (temperature <= 0)
    return best;
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    total += weights[i] = std::exp(static_cast<double>(scores[i] - scores[best]) / temperature);
  double left = sw::unit_interval(sw::random_words({seed, stream}, number).word[0]) * total;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) < 0)
      return i;
  return best;
}

/// @brief What follows the tokens of a pass is drawn from these places on, so.
struct Draws {
  std::size_t first = 0, end = 0; ///< Places of the row.
  double temperature = 0;
  std::uint64_t number = 0; ///< Key of the random numbers.
};

/// @brief Draws the tokens after each place of some rows, one row for each rank that splits the batch: on
/// every rank the same, as random numbers are keyed only by `draws`. Collective.
/// @param rows tokens of each row, at most `sequence`
/// @return for each row the tokens after places [draws.first, draws.end)
template <class Parts, class Batches>
[[nodiscard]] std::vector<std::vector<std::int32_t>>
next_tokens(Parts& run, Batches& reader, const Options& options,
            const std::vector<std::vector<std::int32_t>>& rows, std::size_t sequence, const Draws& draws) {
  using Task = typename Parts::Task;
  using Whole = sw::Layout<3, typename Task::Rows>; // of cp and tp
  const auto length = static_cast<std::int64_t>(sequence);
  const std::size_t drawn = draws.end - draws.first;
  std::size_t mine = 0; // the row of this rank
  const auto batches = reader.passes(
      1, static_cast<std::int64_t>(rows.size()),
      [&](std::size_t row, auto ids, auto targets, auto starts) {
        mine = row;
        std::fill(std::copy(rows[row].begin(), rows[row].end(), ids.begin()), ids.end(), 0);
        std::fill(starts.begin(), starts.end(), 0);
        std::fill(targets.begin(), targets.end(), -1);
      },
      0, length);
  std::vector<std::int32_t> all(rows.size() * drawn, -1);
  run.training.runner().run_forwards(batches, [&](auto& last, auto in, const auto& batch, auto& saved) {
    const auto scores = sw::redistribute<Whole>(last.predict(std::move(in), batch, saved));
    const auto values = sw::local_values(scores);
    const auto vocabulary = static_cast<std::size_t>(run.config.vocabulary);
    std::vector<double> weights(vocabulary);
    const sw::RowOrder order = batch.row_order();
    std::vector<std::size_t> row_of(sequence);
    for (std::size_t row = 0; row < sequence; ++row)
      row_of[order.position_in_text(0, row)] = row;
    for (std::size_t i = 0; i < drawn; ++i) {
      const std::size_t place = row_of[draws.first + i];
      all[mine * drawn + i] = static_cast<std::int32_t>(draw(
          options.seed, draws.temperature, values.data() + place * vocabulary, weights, draws.number + i));
    }
  });
  // Ranks of other rows and other stages have -1.
  sw::HostCommunicator world = run.whole.world();
  world.all_reduce_in_place(std::span(all), sw::ReduceOp::maximum);
  std::vector<std::vector<std::int32_t>> out;
  for (auto row = all.begin(); row != all.end(); row += static_cast<std::ptrdiff_t>(drawn))
    out.emplace_back(row, row + static_cast<std::ptrdiff_t>(drawn));
  return out;
}

/// @brief Continues the prompt one byte at a time, the same on every rank. Collective.
template <class Parts, class Batches>
[[nodiscard]] std::string sample_text(Parts& run, Batches& reader, const Options& options) {
  std::string text = options.prompt.empty() ? std::string("The ") : options.prompt;
  const auto sequence = static_cast<std::size_t>(run.config.sequence);
  for (int i = 0; i < options.sample; ++i) {
    const std::size_t shown = std::min(text.size(), sequence);
    std::vector<std::int32_t> ids;
    for (const char byte : std::string_view(text).substr(text.size() - shown))
      ids.push_back(static_cast<unsigned char>(byte));
    const std::vector rows(static_cast<std::size_t>(options.data_ranks()), ids);
    const Draws draws{shown - 1, shown, options.temperature, static_cast<std::uint64_t>(i)};
    text.push_back(static_cast<char>(next_tokens(run, reader, options, rows, sequence, draws)[0][0]));
  }
  return text;
}

/// @brief Answers the questions with the most likely tokens, the same on every mesh up to rounding.
/// Collective.
///
/// Each pass checks a whole draft, which at first is the expected answer: it keeps the tokens up to the first
/// that is not the most likely one, replaces this one, and drafts the others anew (Jacobi decoding, Santilli
/// et al., arXiv 2305.10427). So an answer takes as many passes as it has such tokens, and one more.
template <class Parts, class Batches>
[[nodiscard]] std::vector<std::vector<std::int32_t>>
answer(Parts& run, Batches& reader, const Options& options, const std::vector<Question>& questions) {
  std::vector<std::vector<std::int32_t>> out;
  const auto ranks = static_cast<std::size_t>(options.data_ranks());
  const std::size_t sequence = sequence_of(questions, options);
  for (std::size_t begin = 0; begin < questions.size(); begin += ranks) {
    std::vector<Draft> drafts;
    for (std::size_t i = 0; i < ranks; ++i)
      drafts.emplace_back(questions[std::min(begin + i, questions.size() - 1)], sequence);
    while (!std::all_of(drafts.begin(), drafts.end(), [](const Draft& draft) { return draft.ended(); })) {
      std::vector<std::vector<std::int32_t>> rows;
      for (const Draft& draft : drafts)
        rows.push_back(draft.tokens());
      const auto next = next_tokens(run, reader, options, rows, sequence, {.first = 0, .end = sequence});
      for (std::size_t i = 0; i < ranks; ++i)
        drafts[i].revise(next[i]);
    }
    for (std::size_t i = 0; i < ranks && out.size() < questions.size(); ++i)
      out.push_back(drafts[i].answer());
  }
  return out;
}

} // namespace train_gpt
