// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The loop of generation: a prompt in one pass, then a token at a time.

#include "generation.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/philox.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

namespace generate {

std::int32_t pick(std::span<const float> scores, const Sampling& sampling, std::uint64_t place) {
  const auto greatest = std::max_element(scores.begin(), scores.end());
  if (sampling.temperature == 0)
    return static_cast<std::int32_t>(greatest - scores.begin());
  std::vector<std::pair<double, std::int32_t>> likely; // highest probability first
  double total = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight =
        std::exp((static_cast<double>(scores[i]) - static_cast<double>(*greatest)) / sampling.temperature);
    likely.emplace_back(weight, static_cast<std::int32_t>(i));
    total += weight;
  }
  std::stable_sort(likely.begin(), likely.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  double kept = 0;
  std::size_t count = 0;
  while (count < likely.size() && (count == 0 || kept < sampling.top_p * total))
    kept += likely[count++].first;
  constexpr std::uint64_t stream = 0x67656e65; // separate from those of initial weights and dropout
  double left = sw::unit_interval(sw::random_words({sampling.seed, stream}, place).word[0]) * kept;
  std::size_t chosen = 0;
  while (chosen + 1 < count && left >= likely[chosen].first)
    left -= likely[chosen++].first;
  return likely[chosen].second;
}

namespace {

/// No choice follows from scores that are not numbers.
void require_finite(std::span<const float> scores, std::int64_t tokens) {
  const auto bad =
      std::find_if(scores.begin(), scores.end(), [](float score) { return !std::isfinite(score); });
  if (bad != scores.end())
    throw sw::DataError("Model: the scores must be finite, but that of token " +
                        std::to_string(bad - scores.begin()) + " after " + std::to_string(tokens) +
                        " tokens is " + (std::isnan(*bad) ? "not a number" : "infinite") +
                        " (these weights overflow float: fetch them again)");
}

} // namespace

Generation continue_prompt(Model& model, std::span<const std::int32_t> prompt, std::int64_t most,
                           const Sampling& sampling, std::span<const std::int32_t> ends, bool keep_scores,
                           const std::function<void(std::int32_t)>& on_token) {
  Generation out;
  std::vector<float> scores = model.append(prompt, keep_scores ? Scores::all : Scores::last);
  const std::size_t vocabulary = keep_scores ? scores.size() / prompt.size() : scores.size();
  if (keep_scores)
    out.prompt_scores = scores;
  for (std::int64_t i = 0; i < most; ++i) {
    require_finite(std::span(scores).last(vocabulary), model.size());
    const std::int32_t token =
        pick(std::span(scores).last(vocabulary), sampling, static_cast<std::uint64_t>(i));
    out.tokens.push_back(token);
    on_token(token);
    if (i + 1 == most || std::find(ends.begin(), ends.end(), token) != ends.end())
      break;
    scores = model.append(std::span(&token, 1), Scores::last);
  }
  return out;
}

} // namespace generate
