// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The data that the models learn from: samples by stated formulas, from a seed and the number of the
/// sample.

#include <cstdint>
#include <string_view>
#include <vector>

namespace models {

/// @brief One row of a batch; a model uses some of it.
struct Sample {
  std::vector<double> features;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets; ///< Next tokens, or a class at the first place; -1 does not count.
  std::int32_t length = 0;           ///< Tokens before the padding.
};

/// @brief A point on one of `arms` spirals: radius r = u, angle 2 pi (arm / arms + r) + (v - 1/2) / 2, where
/// u and v are uniform in (0, 1); its features are (r cos, r sin), its class the arm.
[[nodiscard]] Sample spiral_point(std::uint64_t seed, std::uint64_t number, std::int64_t arms);

/// @brief A text: a random token, then 5 t + 3 modulo the vocabulary after token t, but for one in eight,
/// which is random again. Targets are the next tokens.
[[nodiscard]] Sample noisy_text(std::uint64_t seed, std::uint64_t number, std::int64_t vocabulary,
                                std::int64_t sequence);

/// @brief Votes: token 0, then from half a sequence to a whole one of random tokens from 1 on. The class is 1
/// where token 1 occurs more often than token 2, else 0. The padding is token 0.
[[nodiscard]] Sample votes(std::uint64_t seed, std::uint64_t number, std::int64_t vocabulary,
                           std::int64_t sequence);

} // namespace models
