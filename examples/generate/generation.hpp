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

/// @brief How a token is taken from scores.
struct Sampling {
  double temperature = 0; ///< 0: the greatest score.
  double top_p = 1;       ///< Of the most likely tokens, as many as have this probability together.
  std::uint64_t seed = 1;
};

/// @brief The token number `place` of a text: the greatest score, the first of equals, or one that is drawn
/// by `seed` and `place` alone, the same on every rank (Holtzman et al., arXiv 1904.09751).
[[nodiscard]] std::int32_t pick(std::span<const float> scores, const Sampling& sampling, std::uint64_t place);

/// @brief What generation reads and gives.
struct Generation {
  std::vector<std::int32_t> tokens; ///< New ones, with the end token where it came to one.
  std::vector<float> prompt_scores; ///< [prompt, vocabulary], where they were asked for.
};

/// @brief Continues a prompt until `most` new tokens, or one of `ends`. Collective.
/// @param on_token called with each new token
[[nodiscard]] Generation continue_prompt(Model& model, std::span<const std::int32_t> prompt,
                                         std::int64_t most, const Sampling& sampling,
                                         std::span<const std::int32_t> ends, bool keep_scores,
                                         const std::function<void(std::int32_t)>& on_token);

} // namespace generate
