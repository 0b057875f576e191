// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Options for how a router chooses and weights experts, and how their bias is updated.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/kernels/experts/routing.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The scores that a router computes from logits, and the resulting gates.
using RouterScores = kernels::RouterScores;

/// @brief The score of a group of experts, from the biased scores of its members.
enum class GroupScore : std::uint8_t {
  largest,     ///< DeepSeek-V2 (arXiv 2405.04434).
  two_largest, ///< Their sum (DeepSeek-V3, arXiv 2412.19437).
  share        ///< The sum of as many as are chosen per kept group on average: chosen / kept groups.
};

/// @brief The rule of a router.
struct RouterOptions {
  std::int64_t chosen = 1; ///< Distinct experts for each token.
  RouterScores scores = RouterScores::chosen_softmax;
  bool renormalise = false;     ///< For `softmax`: divide the gates by their sum.
  double scale = 1;             ///< Factor on all gates, the route scale.
  std::int64_t groups = 1;      ///< Groups of neighbouring experts, at most 64.
  std::int64_t kept_groups = 1; ///< Groups from which a token chooses its experts.
  GroupScore group_score = GroupScore::share;

  /// @brief The numbers that all ranks must give alike.
  [[nodiscard]] std::array<GivenNumber, 7> numbers() const {
    return {GivenNumber("number of chosen experts", chosen),
            GivenNumber("number of the scores", static_cast<int>(scores)),
            GivenNumber("renormalise", renormalise),
            GivenNumber("scale", scale),
            GivenNumber("number of groups", groups),
            GivenNumber("number of kept groups", kept_groups),
            GivenNumber("number of the group score", static_cast<int>(group_score))};
  }
};

/// @brief The update rule of the experts' bias.
struct ExpertBiasOptions {
  double rate = 0;       ///< Change per step; 0 keeps the bias unchanged. DeepSeek-V3 uses 0.001.
  bool recentre = false; ///< Subtract the mean from a step's changes, so that their sum is 0.
  bool loaded = false;   ///< Use the bias even at rate 0, since a published model or a checkpoint sets it.

  /// @brief Returns whether the bias affects the choice.
  [[nodiscard]] constexpr bool used() const noexcept { return loaded || rate != 0; }
  /// @brief The numbers that all ranks must give alike.
  [[nodiscard]] std::array<GivenNumber, 2> numbers() const {
    return {GivenNumber("rate of the bias", rate), GivenNumber("recentre", recentre)};
  }
};

namespace detail {

/// The rule in the form that kernels use. @throws InvalidArgument if the numbers are inconsistent.
[[nodiscard]] inline kernels::RoutingRule routing_rule(const RouterOptions& options, std::int64_t experts) {
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds)
      throw InvalidArgument("route: " + sentence);
  };
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  require(options.chosen >= 1 && options.chosen <= experts,
          "each token must choose at least 1 and at most all experts, but it chooses " +
              text(options.chosen) + " of " + text(experts) + " (change RouterOptions::chosen)");
  require(options.groups >= 1 && options.groups <= std::int64_t{kernels::most_expert_groups} &&
              experts % options.groups == 0,
          "1 to 64 groups must divide the experts, but " + text(options.groups) + " do not divide " +
              text(experts) + " (change RouterOptions::groups)");
  const std::int64_t size = experts / options.groups;
  require(options.kept_groups >= 1 && options.kept_groups <= options.groups &&
              options.kept_groups * size >= options.chosen,
          "the kept groups must hold the chosen experts, but " + text(options.kept_groups) + " of " +
              text(options.groups) + " groups hold " + text(options.kept_groups * size) + " and " +
              text(options.chosen) + " are chosen (change RouterOptions::kept_groups)");
  require(std::isfinite(options.scale) && options.scale > 0,
          "the route scale must be a positive number, but it is " + std::to_string(options.scale) +
              " (change RouterOptions::scale)");
  const std::int64_t terms = options.group_score == GroupScore::largest ? 1
                             : options.group_score == GroupScore::two_largest
                                 ? 2
                                 : options.chosen / options.kept_groups;
  const auto count = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  kernels::RoutingRule out;
  out.experts = count(experts);
  out.chosen = count(options.chosen);
  out.scores = options.scores;
  out.renormalise = options.renormalise;
  out.scale = options.scale;
  out.groups = count(options.groups);
  out.kept_groups = count(options.kept_groups);
  out.group_terms = count(std::clamp<std::int64_t>(terms, 1, size));
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
