// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The numbers of ranks and microbatches that a policy allows, and the nearest legal ones otherwise.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The number that a policy's rule restricts.
enum class ScheduleExtent : std::uint8_t { ranks, microbatches };

/// @brief The policy rule that numbers of ranks and microbatches violate, if any.
struct ScheduleRule {
  std::string_view broken{}; ///< Such as "the number of microbatches must be even"; empty if all is well.
  ScheduleExtent about = ScheduleExtent::microbatches; ///< The number that has to change.

  [[nodiscard]] constexpr bool holds() const noexcept { return broken.empty(); }
};

/// @brief The nearest legal numbers on either side of an illegal one; 0 if there is none on that side.
struct NearestLegal {
  int below = 0;
  int above = 0;

  friend constexpr bool operator==(const NearestLegal&, const NearestLegal&) = default;
};

/// @brief The rule of `Policy` that the two numbers violate, if any; both must be positive for every policy.
template <class Policy>
[[nodiscard]] constexpr ScheduleRule schedule_rule(int ranks, int microbatches) {
  if (ranks < 1)
    return {"the number of ranks must be positive", ScheduleExtent::ranks};
  if (microbatches < 1)
    return {"the number of microbatches must be positive", ScheduleExtent::microbatches};
  return Policy::rule(ranks, microbatches);
}

/// @brief The window that a runner of a policy needs: the default one unless the policy asks for another.
template <class Policy>
[[nodiscard]] constexpr MessageWindow message_window(int ranks, int microbatches) {
  if constexpr (requires { Policy::window(ranks, microbatches); })
    return Policy::window(ranks, microbatches);
  else
    return {};
}

/// @brief The legal values of one number next to the given one, the other number unchanged.
template <class Policy>
[[nodiscard]] constexpr NearestLegal nearest_legal(ScheduleExtent about, int ranks, int microbatches) {
  const bool of_ranks = about == ScheduleExtent::ranks;
  const auto legal = [&](int value) {
    const ScheduleRule rule =
        schedule_rule<Policy>(of_ranks ? value : ranks, of_ranks ? microbatches : value);
    return rule.holds() || rule.about != about;
  };
  const int value = of_ranks ? ranks : microbatches;
  // Upwards every rule is met within twice the ranks: the next multiple of the ranks, or the least number.
  const int highest = (value > 0 ? value : 0) + 2 * (ranks > 0 ? ranks : 0) + 2;
  NearestLegal nearest;
  for (int below = value - 1; below > 0 && nearest.below == 0; --below)
    nearest.below = legal(below) ? below : 0;
  for (int above = value < 0 ? 1 : value + 1; above <= highest && nearest.above == 0; ++above)
    nearest.above = legal(above) ? above : 0;
  return nearest;
}

namespace detail {

[[noreturn]] inline void fail_schedule_rule(std::string_view policy, ScheduleRule rule, NearestLegal nearest,
                                            int ranks, int microbatches) {
  std::string advice = "choose another policy";
  if (nearest.below > 0 || nearest.above > 0) {
    advice = "the nearest legal numbers of ";
    advice += rule.about == ScheduleExtent::ranks ? "ranks are " : "microbatches are ";
    advice += nearest.below > 0 ? std::to_string(nearest.below) : "";
    advice += nearest.below > 0 && nearest.above > 0 ? " and " : "";
    advice += nearest.above > 0 ? std::to_string(nearest.above) : "";
  }
  throw InvalidArgument(std::string(policy) + ": " + std::string(rule.broken) + ", but there are " +
                        std::to_string(microbatches) + " microbatches on " + std::to_string(ranks) +
                        " ranks (" + advice + ")");
}

/// Checks that a policy allows the two numbers.
/// @throws InvalidArgument naming the rule, both numbers and the nearest legal values.
template <class Policy>
constexpr void check_schedule_rule(int ranks, int microbatches) {
  const ScheduleRule rule = schedule_rule<Policy>(ranks, microbatches);
  if (!rule.holds())
    fail_schedule_rule(Policy::name, rule, nearest_legal<Policy>(rule.about, ranks, microbatches), ranks,
                       microbatches);
}

template <int below, int above, bool legal>
struct NearestRanks {
  static_assert(
      legal,
      "PipelineSchedule: the policy must allow this number of ranks (take one of the two numbers of NearestRanks in the trace, where 0 means none)");
};

template <int below, int above, bool legal>
struct NearestMicrobatches {
  static_assert(
      legal,
      "PipelineSchedule: the policy must allow this number of microbatches on these ranks (take one of the two numbers of NearestMicrobatches in the trace, where 0 means none)");
};

template <class Policy, int ranks, int microbatches>
struct StaticRule {
  static constexpr ScheduleRule rule = schedule_rule<Policy>(ranks, microbatches);
  static constexpr bool ranks_legal = rule.holds() || rule.about != ScheduleExtent::ranks;
  static constexpr bool microbatches_legal = rule.holds() || rule.about != ScheduleExtent::microbatches;
  static constexpr NearestLegal nearest =
      rule.holds() ? NearestLegal{} : nearest_legal<Policy>(rule.about, ranks, microbatches);
  static_assert(sizeof(NearestRanks<nearest.below, nearest.above, ranks_legal>) != 0);
  static_assert(sizeof(NearestMicrobatches<nearest.below, nearest.above, microbatches_legal>) != 0);
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
