// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Noisy text for decoders with experts, in the styles of DeepSeek-V3 and of Mixtral.

#include "task.hpp"

#include <shardwright/nn/decoder/moe.hpp>

#include <map>
#include <string>
#include <string_view>

namespace models {

/// @brief Sizes of the model given by the options: "moe" has a dense first layer, shared experts, sigmoids,
/// groups and a bias; "mixtral" has none of them, but a balance loss.
[[nodiscard]] inline sw::MoeConfig moe_config(const Options& options) {
  sw::MoeConfig config;
  config.layers = 4;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = 4;
  config.hidden = 48;
  config.vocabulary = 32;
  config.sequence = 16;
  config.initial_deviation = 0.1;
  config.recompute = options.recompute;
  config.experts = 8;
  config.expert_hidden = 24;
  config.batch_sequences = options.rows();
  if (std::string_view(options.model).starts_with("moe")) {
    config.dense_layers = 1;
    config.shared_hidden = 24;
    config.routing = sw::RouterOptions{.chosen = 2,
                                       .scores = sw::RouterScores::sigmoid,
                                       .scale = 1.5,
                                       .groups = 4,
                                       .kept_groups = 2,
                                       .group_score = sw::GroupScore::two_largest};
    config.bias = sw::ExpertBiasOptions{.rate = 0.01};
    config.balance = 0.001;
  } else {
    config.routing = sw::RouterOptions{.chosen = 2};
    config.balance = 0.02;
    config.z_loss = 0.001;
  }
  return config;
}

/// @tparam OwnerAxes axes that own the experts
template <class Plan, class OwnerAxes> struct MoeTask : TextTask {
  static constexpr bool has_experts = true;
  //! [model]
  using Model = sw::MoeDecoder<sw::MoeLayouts<typename Plan::zero, OwnerAxes>, typename Plan::element,
                               typename Plan::target>;
  //! [model]

  [[nodiscard]] static sw::MoeConfig config(const Options& options) { return moe_config(options); }
  /// @brief The numbers that another implementation of the routers and their losses needs for comparison.
  [[nodiscard]] static std::map<std::string, double> rule(const sw::MoeConfig& config) {
    const auto number = [](auto value) { return static_cast<double>(value); };
    return {{"chosen", number(config.routing.chosen)},
            {"sigmoid", number(config.routing.scores == sw::RouterScores::sigmoid)},
            {"scale", config.routing.scale},
            {"groups", number(config.routing.groups)},
            {"kept_groups", number(config.routing.kept_groups)},
            {"bias_rate", config.bias.rate},
            {"balance", config.balance},
            {"balances_sequences", number(config.balance_over == sw::BalanceOver::sequence)},
            {"z_loss", config.z_loss}};
  }
};

} // namespace models
