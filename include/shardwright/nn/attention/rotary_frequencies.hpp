// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Frequencies of rotary embeddings, and their scaling to longer sequences.

#include <shardwright/core/config.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Scaling by wavelength: frequencies with fewer than `low` turns within the original positions are
/// divided by `factor`, those with more than `high` turns are kept, and those in between are interpolated
/// (Grattafiori et al., arXiv 2407.21783; as in the published Llama 3.1 code).
struct RotaryScaling {
  double factor = 1;
  double low = 1;
  double high = 4;
  double positions = 8192; ///< Length of the original sequences.
};

/// @brief The angles per position, base^(-2 i / head_width), [head_width / 2] (Su et al., arXiv 2104.09864).
[[nodiscard]] inline std::vector<double>
rotary_frequencies(std::int64_t head_width, double base,
                   const std::optional<RotaryScaling>& scaling = std::nullopt) {
  std::vector<double> out(static_cast<std::size_t>(head_width / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    double& frequency = out[i];
    frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
    if (!scaling)
      continue;
    const double turns = scaling->positions * frequency / (2 * std::numbers::pi);
    const double kept = turns <= scaling->low    ? 0
                        : turns >= scaling->high ? 1
                                                 : (turns - scaling->low) / (scaling->high - scaling->low);
    frequency *= kept + (1 - kept) / scaling->factor;
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
