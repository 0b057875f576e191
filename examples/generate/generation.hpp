// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The loop of generation: a prompt in one pass, then a token at a time.

#include "model.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace generate {

/// @brief The rule by which a token is chosen from the scores.
struct Sampling {
  double temperature = 0; ///< 0: the greatest score.
  double top_p = 1;       ///< The most likely tokens that together have this probability are drawn from.
  std::uint64_t seed = 1;
};

/// @brief Chooses token number `place` of a text: the one with the greatest score, the first among equals, or
/// one drawn from only `seed` and `place`, the same on every rank (Holtzman et al., arXiv 1904.09751).
[[nodiscard]] std::int32_t pick(std::span<const float> scores, const Sampling& sampling, std::uint64_t place);

/// @brief The result of a generation.
struct Generation {
  std::vector<std::int32_t> tokens; ///< New ones, with those of the end if there was one.
  std::vector<float> prompt_scores; ///< [prompt, vocabulary], if they were asked for.
};

/// @brief Continues several prompts at once, each by the tokens that it has alone. The prompts are read in
/// one pass without padding; a prompt that has ended takes no part in later passes. Collective.
/// @param model made for as many sequences
/// @param ends sequences of tokens, each of which ends a text
/// @param on_token called with the number of the prompt and each of its new tokens
[[nodiscard]] std::vector<Generation>
continue_prompts(Model& model, std::span<const std::vector<std::int32_t>> prompts, std::int64_t most,
                 const Sampling& sampling, std::span<const std::vector<std::int32_t>> ends, bool keep_scores,
                 const std::function<void(std::size_t, std::int32_t)>& on_token);

/// @brief Continues a prompt for up to `most` new tokens, or until one of `ends`. Collective.
/// @param on_token called with each new token
[[nodiscard]] Generation continue_prompt(Model& model, std::span<const std::int32_t> prompt,
                                         std::int64_t most, const Sampling& sampling,
                                         std::span<const std::vector<std::int32_t>> ends, bool keep_scores,
                                         const std::function<void(std::int32_t)>& on_token);

} // namespace generate
