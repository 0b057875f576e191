// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The numbers of ranks and microbatches that a policy allows, and the nearest legal ones otherwise.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <algorithm>
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
  int beside_below = 0; ///< If the other number must change as well: what it must be, else 0.
  int beside_above = 0; ///< The same for `above`.

  friend constexpr bool operator==(const NearestLegal&, const NearestLegal&) = default;
};

/// @brief The rule of `Policy` that the two numbers violate, if any; both must be positive for every policy.
template <class Policy> [[nodiscard]] constexpr ScheduleRule schedule_rule(int ranks, int microbatches) {
  if (ranks < 1)
    return {"the number of ranks must be positive", ScheduleExtent::ranks};
  if (microbatches < 1)
    return {"the number of microbatches must be positive", ScheduleExtent::microbatches};
  return Policy::rule(ranks, microbatches);
}

/// @brief The window that a runner of a policy needs: the default one unless the policy asks for another.
template <class Policy> [[nodiscard]] constexpr MessageWindow message_window(int ranks, int microbatches) {
  if constexpr (requires { Policy::window(ranks, microbatches); })
    return Policy::window(ranks, microbatches);
  else
    return {};
}

namespace detail {

/// The largest number of ranks or microbatches that a policy can be asked for.
inline constexpr std::int64_t most_schedule_extent = 2147483647;

/// The values of one number nearest to the given one that break no rule about it, the other number unchanged.
template <class Policy>
[[nodiscard]] constexpr NearestLegal nearest_values(ScheduleExtent about, int ranks, int microbatches) {
  const bool of_ranks = about == ScheduleExtent::ranks;
  const auto legal = [&](std::int64_t value) {
    const ScheduleRule rule = schedule_rule<Policy>(of_ranks ? static_cast<int>(value) : ranks,
                                                    of_ranks ? microbatches : static_cast<int>(value));
    return rule.holds() || rule.about != about;
  };
  const std::int64_t value = of_ranks ? ranks : microbatches;
  // Upwards every rule is met within twice the ranks: the next multiple of the ranks, or the least number.
  const std::int64_t highest = std::min<std::int64_t>(
      std::max<std::int64_t>(value, 0) + 2 * std::max<std::int64_t>(ranks, 0) + 2, most_schedule_extent);
  NearestLegal nearest;
  for (std::int64_t below = value - 1; below > 0 && nearest.below == 0; --below)
    nearest.below = legal(below) ? static_cast<int>(below) : 0;
  for (std::int64_t above = std::max<std::int64_t>(value, 0) + 1; above <= highest && nearest.above == 0;
       ++above)
    nearest.above = legal(above) ? static_cast<int>(above) : 0;
  return nearest;
}

} // namespace detail

/// @brief The legal values of one number next to the given one; the other number is unchanged if a rule about
/// it allows that.
template <class Policy>
[[nodiscard]] constexpr NearestLegal nearest_legal(ScheduleExtent about, int ranks, int microbatches) {
  NearestLegal nearest = detail::nearest_values<Policy>(about, ranks, microbatches);
  const bool of_ranks = about == ScheduleExtent::ranks;
  const auto complete = [&](int& value, int& beside) {
    const int other = of_ranks ? microbatches : ranks;
    const auto rule_beside = [&](int number) {
      return of_ranks ? schedule_rule<Policy>(value, number) : schedule_rule<Policy>(number, value);
    };
    if (value == 0 || rule_beside(other).holds())
      return;
    const NearestLegal next = of_ranks
                                  ? detail::nearest_values<Policy>(ScheduleExtent::microbatches, value, other)
                                  : detail::nearest_values<Policy>(ScheduleExtent::ranks, other, value);
    beside = next.below > 0 && (next.above == 0 || other - next.below < next.above - other) ? next.below
                                                                                            : next.above;
    if (!rule_beside(beside).holds())
      value = beside = 0;
  };
  complete(nearest.below, nearest.beside_below);
  complete(nearest.above, nearest.beside_above);
  return nearest;
}

namespace detail {

[[noreturn]] void fail_schedule_rule(std::string_view policy, ScheduleRule rule, NearestLegal nearest,
                                     int ranks, int microbatches);
[[noreturn]] void fail_schedule_extent(std::string_view policy, ScheduleExtent which, std::int64_t number);

/// A number of ranks or microbatches that a policy can be asked for, as it takes it.
/// @throws InvalidArgument if it is larger; smaller numbers than 1 are for `check_schedule_rule`.
[[nodiscard]] constexpr int schedule_extent(std::string_view policy, ScheduleExtent which,
                                            std::int64_t number) {
  if (number > most_schedule_extent)
    fail_schedule_extent(policy, which, number);
  return static_cast<int>(std::max(number, -most_schedule_extent));
}

/// Checks that a policy allows the two numbers.
/// @throws InvalidArgument naming the rule, both numbers and the nearest legal values.
template <class Policy> constexpr void check_schedule_rule(int ranks, int microbatches) {
  const ScheduleRule rule = schedule_rule<Policy>(ranks, microbatches);
  if (!rule.holds())
    fail_schedule_rule(Policy::name, rule, nearest_legal<Policy>(rule.about, ranks, microbatches), ranks,
                       microbatches);
}

template <int below, int above, int microbatches_below, int microbatches_above, bool legal>
struct NearestRanks {
  static_assert(
      legal,
      "PipelineSchedule: the policy must allow this number of ranks (take one of the first two numbers of NearestRanks in the trace, where 0 means none; if the third or fourth is not 0, with that number of microbatches)");
};

template <int below, int above, int ranks_below, int ranks_above, bool legal> struct NearestMicrobatches {
  static_assert(
      legal,
      "PipelineSchedule: the policy must allow this number of microbatches on these ranks (take one of the first two numbers of NearestMicrobatches in the trace, where 0 means none; if the third or fourth is not 0, with that number of ranks)");
};

template <class Policy, int ranks, int microbatches> struct StaticRule {
  static constexpr ScheduleRule rule = schedule_rule<Policy>(ranks, microbatches);
  static constexpr bool ranks_legal = rule.holds() || rule.about != ScheduleExtent::ranks;
  static constexpr bool microbatches_legal = rule.holds() || rule.about != ScheduleExtent::microbatches;
  static constexpr NearestLegal nearest =
      rule.holds() ? NearestLegal{} : nearest_legal<Policy>(rule.about, ranks, microbatches);
  static_assert(sizeof(NearestRanks<nearest.below, nearest.above, nearest.beside_below, nearest.beside_above,
                                    ranks_legal>) != 0);
  static_assert(sizeof(NearestMicrobatches<nearest.below, nearest.above, nearest.beside_below,
                                           nearest.beside_above, microbatches_legal>) != 0);
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void fail_schedule_rule(std::string_view policy, ScheduleRule rule, NearestLegal nearest,
                                           int ranks, int microbatches) {
  const bool of_ranks = rule.about == ScheduleExtent::ranks;
  const auto number = [&](int value, int beside) {
    std::string out = std::to_string(value);
    if (beside > 0)
      out += " with " + std::to_string(beside) + (of_ranks ? " microbatches" : " ranks");
    return out;
  };
  std::string advice = "choose another policy";
  if (nearest.below > 0 || nearest.above > 0) {
    advice = of_ranks ? "the nearest legal numbers of ranks are "
                      : "the nearest legal numbers of microbatches are ";
    advice += nearest.below > 0 ? number(nearest.below, nearest.beside_below) : "";
    advice += nearest.below > 0 && nearest.above > 0 ? " and " : "";
    advice += nearest.above > 0 ? number(nearest.above, nearest.beside_above) : "";
  }
  throw InvalidArgument(std::string(policy) + ": " + std::string(rule.broken) + ", but there are " +
                        std::to_string(microbatches) + " microbatches on " + std::to_string(ranks) +
                        " ranks (" + advice + ")");
}

SHARDWRIGHT_INLINE void fail_schedule_extent(std::string_view policy, ScheduleExtent which,
                                             std::int64_t number) {
  throw InvalidArgument(std::string(policy) + ": the number of " +
                        (which == ScheduleExtent::ranks ? "ranks" : "microbatches") + " must be at most " +
                        std::to_string(most_schedule_extent) + ", but it is " + std::to_string(number) +
                        " (take fewer)");
}
#endif

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
