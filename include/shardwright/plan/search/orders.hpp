// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The orders of a mesh's axes worth considering for a plan: those that are better than others in some
/// respect.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Orders with their links, for a plan's extents; the simpler ones come first.
struct SearchOrders {
  static constexpr std::size_t most = 2 * plan_order_count;
  std::array<PlanLinks, most> links{};
  std::array<PlanOrder, most> orders{};
  std::array<bool, most> experts_outside{};
  PlanLinks least{}; ///< The best of all orders for each kind.
  int count = 0;

  constexpr void settle(PlanConfiguration& plan, std::size_t index) const {
    plan.order = orders[index];
    plan.experts_outside = experts_outside[index];
  }

  /// Fills an empty list. An axis of extent 1 has no position, so orders that differ only in such axes count
  /// once; the others are kept unless all links of an earlier order are at least as good.
  constexpr void find(const ClusterSpec& cluster, PlanConfiguration plan, const TokenCopies& copies,
                      const SharedCalibration& shared, const SearchSpace& space) {
    if (count > 0)
      return;
    std::array<int, plan_order_count> seen{};
    int distinct = 0;
    const bool splits = plan.ep > 1 && plan.expert_dp() > 1;
    const ClusterLinks achieved(cluster, shared);
    for (int number = 0; number < plan_order_count; ++number) {
      plan.order = static_cast<PlanOrder>(number);
      if (space.order && *space.order != plan.order)
        continue;
      int placed = 1; // the axes that have a position, as digits
      for (const PlanAxis axis : axes_of(plan.order))
        if (plan.extent(axis) > 1)
          placed = 4 * placed + static_cast<int>(axis);
      bool again = false;
      for (int i = 0; i < distinct; ++i)
        again = again || seen[static_cast<std::size_t>(i)] == placed;
      if (again)
        continue;
      seen[static_cast<std::size_t>(distinct++)] = placed;
      plan.experts_outside = space.experts_outside.value_or(false);
      const PlanLinks first = plan_links(achieved, plan, copies);
      add(plan, first);
      if (splits && !space.experts_outside) {
        plan.experts_outside = true;
        add(plan, with_experts_of(first, achieved, plan, copies));
      }
    }
  }

private:
  [[nodiscard]] static constexpr MessageTime least_of(const MessageTime& left, const MessageTime& right) {
    return {std::min(left.per_byte, right.per_byte), std::min(left.latency_seconds, right.latency_seconds),
            left.leaves && right.leaves};
  }
  [[nodiscard]] static constexpr PlanLinks least_of(const PlanLinks& left, const PlanLinks& right) {
    return {least_of(left.tensor, right.tensor),
            least_of(left.context, right.context),
            least_of(left.expert, right.expert),
            least_of(left.pipeline, right.pipeline),
            least_of(left.data, right.data),
            least_of(left.copies, right.copies),
            least_of(left.expert_data, right.expert_data)};
  }

  constexpr void add(const PlanConfiguration& plan, const PlanLinks& found) {
    for (int i = 0; i < count; ++i)
      if (links[static_cast<std::size_t>(i)].no_worse_than(found))
        return;
    least = count == 0 ? found : least_of(least, found);
    const auto at = static_cast<std::size_t>(count++);
    links[at] = found;
    orders[at] = plan.order;
    experts_outside[at] = plan.experts_outside;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
