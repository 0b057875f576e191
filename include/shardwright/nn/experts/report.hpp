// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Human-readable reports of the load of experts in a step.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The load of a layer's experts in the last step that was taken.
struct ExpertLoadReport {
  std::string name;                 ///< Path of the ExpertLoad in its model.
  std::vector<std::int64_t> chosen; ///< Tokens that chose each expert; empty before the first step.
  std::vector<float> bias;          ///< Bias of each expert, for the next step.
  std::int64_t dropped = 0;         ///< Choices dropped because of the capacity.
  double balance_loss = 0;          ///< Mean over the routed tokens, with its coefficient; 0 without one.
  double z_loss = 0;                ///< As balance_loss.
};

/// @brief A summary of the loads of all layers of a model.
struct ExpertSummary {
  double busiest_share =
      0; ///< The largest share of its layer's choices that one expert got; 1 / experts if even.
  double least_bias = 0;
  double largest_bias = 0;
  double dropped_share = 0; ///< Of all choices.
  double balance_loss = 0;  ///< Sum over the layers, as it is added to the loss of tokens.
  double z_loss = 0;        ///< As balance_loss.

  /// @brief "busiest expert 14.1% of a layer's choices, bias -0.002 to 0.003, 0.00% dropped", and the losses
  /// that there are: ", balance loss 0.0412".
  [[nodiscard]] std::string text() const {
    char line[128];
    std::snprintf(line, sizeof line,
                  "busiest expert %.1f%% of a layer's choices, bias %.3g to %.3g, %.2f%% dropped",
                  100 * busiest_share, least_bias, largest_bias, 100 * dropped_share);
    std::string out = line;
    for (const auto& [name, value] : {std::pair{"balance loss", balance_loss}, {"z-loss", z_loss}})
      if (value != 0) {
        std::snprintf(line, sizeof line, ", %s %.3g", name, value);
        out += line;
      }
    return out;
  }
};

/// @brief Returns the busiest expert over the layers of a model, the range of their biases and what they
/// dropped.
[[nodiscard]] inline ExpertSummary summary_of(std::span<const ExpertLoadReport> layers) {
  ExpertSummary out;
  std::int64_t choices = 0, dropped = 0;
  for (const ExpertLoadReport& layer : layers) {
    std::int64_t own = 0, most = 0;
    for (const std::int64_t tokens : layer.chosen) {
      own += tokens;
      most = std::max(most, tokens);
    }
    if (own > 0)
      out.busiest_share = std::max(out.busiest_share, static_cast<double>(most) / static_cast<double>(own));
    for (const float bias : layer.bias) {
      out.least_bias = std::min(out.least_bias, static_cast<double>(bias));
      out.largest_bias = std::max(out.largest_bias, static_cast<double>(bias));
    }
    out.balance_loss += layer.balance_loss;
    out.z_loss += layer.z_loss;
    choices += own;
    dropped += layer.dropped;
  }
  if (choices > 0)
    out.dropped_share = static_cast<double>(dropped) / static_cast<double>(choices);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
