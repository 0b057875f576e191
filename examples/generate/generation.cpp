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

bool has_ended(const std::vector<std::int32_t>& tokens, std::span<const std::vector<std::int32_t>> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const std::vector<std::int32_t>& end) {
    return end.size() <= tokens.size() && std::equal(end.rbegin(), end.rend(), tokens.rbegin());
  });
}

} // namespace

std::vector<Generation> continue_prompts(Model& model, std::span<const std::vector<std::int32_t>> prompts,
                                         std::int64_t most, const Sampling& sampling,
                                         std::span<const std::vector<std::int32_t>> ends, bool keep_scores,
                                         const std::function<void(std::size_t, std::int32_t)>& on_token) {
  std::vector<Generation> out(prompts.size());
  std::vector<NewTokens> added;
  std::size_t tokens = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    added.push_back({static_cast<std::int64_t>(added.size()), prompt});
    tokens += prompt.size();
  }
  std::vector<float> scores = model.append(added, keep_scores ? Scores::all : Scores::last);
  const std::size_t vocabulary = scores.size() / (keep_scores ? tokens : prompts.size());
  if (keep_scores) {
    std::vector<float> last;
    for (std::size_t prompt = 0, at = 0; prompt < prompts.size(); ++prompt) {
      const auto own = std::span(scores).subspan(at, prompts[prompt].size() * vocabulary);
      out[prompt].prompt_scores.assign(own.begin(), own.end());
      last.insert(last.end(), own.end() - static_cast<std::ptrdiff_t>(vocabulary), own.end());
      at += own.size();
    }
    scores = std::move(last);
  }
  std::vector<std::int32_t> chosen(prompts.size()); // which the next pass reads
  for (std::int64_t i = 0; i < most && !added.empty(); ++i) {
    std::vector<NewTokens> going_on;
    for (std::size_t row = 0; row < added.size(); ++row) {
      const std::int64_t sequence = added[row].sequence;
      const auto own = std::span(scores).subspan(row * vocabulary, vocabulary);
      require_finite(own, model.size(sequence));
      const std::int32_t token = pick(own, sampling, static_cast<std::uint64_t>(i));
      const auto prompt = static_cast<std::size_t>(sequence);
      chosen[prompt] = token;
      out[prompt].tokens.push_back(token);
      on_token(prompt, token);
      if (!has_ended(out[prompt].tokens, ends))
        going_on.push_back({sequence, std::span(&chosen[prompt], 1)});
    }
    added = std::move(going_on);
    if (i + 1 < most && !added.empty())
      scores = model.append(added, Scores::last);
  }
  return out;
}

Generation continue_prompt(Model& model, std::span<const std::int32_t> prompt, std::int64_t most,
                           const Sampling& sampling, std::span<const std::vector<std::int32_t>> ends,
                           bool keep_scores, const std::function<void(std::int32_t)>& on_token) {
  const std::vector<std::int32_t> one(prompt.begin(), prompt.end());
  return std::move(continue_prompts(model, std::span(&one, 1), most, sampling, ends, keep_scores,
                                    [&](std::size_t, std::int32_t token) { on_token(token); })
                       .front());
}

} // namespace generate
