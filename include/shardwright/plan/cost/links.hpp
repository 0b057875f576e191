// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The cost per byte in each group of a plan, given the place of the group in a cluster according to
/// the plan's order of axes.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/collective_time.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A value for every group of a plan's ranks, by the traffic that it has.
template <class Value> struct PlanGroups {
  Value tensor{};      ///< Gathers over tp.
  Value context{};     ///< Gathers over cp.
  Value expert{};      ///< All-to-alls over ep.
  Value pipeline{};    ///< A send to the next stage, averaged over the stages.
  Value data{};        ///< Gathers over dp and cp, of everything except the experts.
  Value copies{};      ///< Gathers over ranks that hold the same parts of these (HSDP).
  Value expert_data{}; ///< Gathers over the ranks that hold copies of an expert.

  [[nodiscard]] constexpr bool no_worse_than(const PlanGroups& other) const noexcept {
    return tensor.no_worse_than(other.tensor) && context.no_worse_than(other.context) &&
           expert.no_worse_than(other.expert) && pipeline.no_worse_than(other.pipeline) &&
           data.no_worse_than(other.data) && copies.no_worse_than(other.copies) &&
           expert_data.no_worse_than(other.expert_data);
  }
};

/// @brief The links for every kind of traffic in a plan.
using PlanLinks = PlanGroups<MessageTime>;

/// @brief Copies of a token that are sent to routed experts.
[[nodiscard]] constexpr TokenCopies copies_of(const ModelSpec& model, const RunSpec& run) noexcept {
  return {model.experts.active, model.experts.groups, model.experts.all_groups,
          run.dispatch == ExpertDispatch::fused};
}

namespace detail {

/// The axes of a plan's mesh at the places that its order gives them, by PlanAxis.
struct PlacedAxes {
  std::array<AxisGroup, 4> axes{};

  explicit constexpr PlacedAxes(const PlanConfiguration& plan) noexcept {
    double stride = 1;
    for (const PlanAxis axis : axes_of(plan.order)) {
      const double extent = plan.extent(axis);
      axes[static_cast<std::size_t>(axis)] = {extent, stride};
      stride *= extent;
    }
  }
  [[nodiscard]] constexpr const AxisGroup& operator[](PlanAxis axis) const noexcept {
    return axes[static_cast<std::size_t>(axis)];
  }
};

/// The ranks of a stage, or those of them along dp and cp, as two groups: `inner` of them, neighbours first,
/// and the number of such groups. Each axis gives as many ranks as divide both it and what is left.
struct SplitGroups {
  MergedGroup inner{}, outer{};
};
[[nodiscard]] constexpr SplitGroups split_stage(const PlanConfiguration& plan, const PlacedAxes& placed,
                                                std::int64_t inner, bool tensor = true) noexcept {
  SplitGroups out;
  for (const PlanAxis axis : axes_of(plan.order)) {
    if (axis == PlanAxis::pp || (axis == PlanAxis::tp && !tensor))
      continue;
    const double extent = placed[axis].extent, stride = placed[axis].stride;
    const std::int64_t common = std::gcd(std::int64_t{plan.extent(axis)}, inner);
    const auto taken = static_cast<double>(common);
    out.inner.add({taken, stride});
    out.outer.add({extent / taken, stride * taken});
    inner /= common;
  }
  return out;
}

/// Calls `function(level, share)` with the fraction of an axis's neighbour hops that use each level, in the
/// group that leaves most domains: for p ranks, k of them per domain, p / k - 1 hops leave one.
template <class Function>
constexpr void for_each_hop(const ClusterSpec& cluster, const AxisGroup& axis,
                            const Function& function) noexcept {
  double left = axis.extent - 1; // hops that leave the domains of the levels so far
  for (int level = 0; level < cluster.domain_count && left > 0; ++level) {
    const std::int64_t chips = cluster.domains[static_cast<std::size_t>(level)].chips;
    const double leaving = level + 1 == cluster.domain_count
                               ? 0
                               : std::min(left, most_crossed(axis, least_inside(axis, chips), chips));
    function(level, (left - leaving) / (axis.extent - 1));
    left = leaving;
  }
}

/// A hop between neighbours, averaged over all of a group.
[[nodiscard]] constexpr MessageTime mean_hop(const ClusterLinks& of, const AxisGroup& axis) noexcept {
  MessageTime out;
  for_each_hop(of.cluster, axis, [&](int level, double share) {
    const DomainSpec& domain = of.cluster.domains[static_cast<std::size_t>(level)];
    out.per_byte += share / (domain.bandwidth * of.achieved(level));
    out.latency_seconds += share * domain.latency_seconds;
  });
  return out;
}

/// Computes the values for the groups of experts and of their copies.
template <class Value, class Collective>
constexpr void add_expert_groups(PlanGroups<Value>& out, const PlanConfiguration& plan,
                                 const PlacedAxes& placed, const TokenCopies& copies,
                                 const Collective& collective) noexcept {
  const std::int64_t ranks = plan.expert_dp();
  const SplitGroups split = split_stage(plan, placed, plan.experts_outside ? ranks : plan.ep);
  if (plan.ep > 1)
    out.expert = collective((plan.experts_outside ? split.outer : split.inner).all(), &copies);
  if (ranks > 1)
    out.expert_data = collective((plan.experts_outside ? split.inner : split.outer).all(), nullptr);
}

/// Computes a value for every group of a plan: `collective(group, copies)` as `group_time` takes them, and
/// `hop` along an axis.
template <class Value, class Collective, class Hop>
[[nodiscard]] constexpr PlanGroups<Value>
of_plan_groups(const PlanConfiguration& plan, const TokenCopies& copies, const Collective& collective,
               const Hop& hop) noexcept {
  const PlacedAxes placed(plan);
  const auto gather = [&](std::span<const AxisGroup> group) { return collective(group, nullptr); };
  const auto along = [&](PlanAxis axis) { return gather({&placed[axis], 1}); };
  PlanGroups<Value> out;
  if (plan.tp > 1)
    out.tensor = along(PlanAxis::tp);
  if (plan.cp > 1)
    out.context = along(PlanAxis::cp);
  if (plan.pp > 1)
    out.pipeline = hop(placed[PlanAxis::pp]);
  const SplitGroups split = split_stage(plan, placed, static_cast<std::int64_t>(plan.data_shards()), false);
  if (split.inner.count > 0)
    out.data = gather(split.inner.all());
  if (split.outer.count > 0)
    out.copies = gather(split.outer.all());
  if (copies.experts > 0)
    add_expert_groups(out, plan, placed, copies, collective);
  return out;
}

[[nodiscard]] constexpr auto times_in(const ClusterLinks& cluster) noexcept {
  return [&cluster](std::span<const AxisGroup> group, const TokenCopies* copies) {
    return group_time(cluster, group, copies);
  };
}

[[nodiscard]] constexpr PlanLinks plan_links(const ClusterLinks& cluster, const PlanConfiguration& plan,
                                             const TokenCopies& copies) noexcept {
  return of_plan_groups<MessageTime>(plan, copies, times_in(cluster),
                                     [&](const AxisGroup& axis) { return mean_hop(cluster, axis); });
}

/// The same links, except those of experts and their copies, which are in other places.
[[nodiscard]] constexpr PlanLinks with_experts_of(PlanLinks links, const ClusterLinks& cluster,
                                                  const PlanConfiguration& plan,
                                                  const TokenCopies& copies) noexcept {
  add_expert_groups(links, plan, PlacedAxes(plan), copies, times_in(cluster));
  return links;
}

/// The fractions of a chip's links that each kind of traffic in a plan uses.
[[nodiscard]] constexpr PlanGroups<LinkShares>
plan_shares(const ClusterLinks& of, const PlanConfiguration& plan, const TokenCopies& copies) noexcept {
  return of_plan_groups<LinkShares>(
      plan, copies,
      [&](std::span<const AxisGroup> group, const TokenCopies* to) { return group_shares(of, group, to); },
      [&](const AxisGroup& axis) {
        const double mean = mean_hop(of, axis).per_byte;
        LinkShares out{};
        for_each_hop(of.cluster, axis, [&](int level, double share) {
          const auto at = static_cast<std::size_t>(level);
          out[at] = share / mean / of.cluster.domains[at].bandwidth / of.achieved(level);
        });
        return out;
      });
}

/// The largest fraction of the links of a torus with sides of this many chips that a group along one axis
/// uses: those of as many dimensions as its extent fills and, if it begins within a dimension, part of those
/// of one more.
[[nodiscard]] constexpr double most_used(double extent, double side, int dimensions) noexcept {
  if (dimensions == 0)
    return 1;
  int whole = 1;
  double chips = side;
  for (; whole < dimensions && chips < extent; ++whole)
    chips *= side;
  return std::min(1.0, (1 + 1e-9) * (whole + std::min(1.0, extent / chips)) / dimensions);
}

/// The least seconds per byte of an all-to-all inside an innermost domain, whatever the dimensions of a torus
/// along which its group extends: it uses at most these.
[[nodiscard]] constexpr double least_inside_domain(const DomainSpec& domain, double bandwidth, double ranks,
                                                   const TokenCopies& copies) noexcept {
  const int torus = domain.torus_dimensions;
  GroupLevel level{.parts = ranks, .bandwidth = bandwidth, .torus_dimensions = torus};
  double least = level.all_to_all_per_byte(copies);
  for (int used = 1; used < torus; ++used) {
    level.torus_dimensions = used;
    level.bandwidth = bandwidth * used / torus;
    least = std::min(least, level.all_to_all_per_byte(copies));
  }
  return least;
}

/// The most members of a group in one domain below the outermost one. If domains do not nest, it need not be
/// the largest of them that holds most.
[[nodiscard]] constexpr double most_inside(const ClusterSpec& cluster, std::int64_t members) noexcept {
  std::int64_t most = cluster.domain_count > 1 ? 1 : members;
  for (std::size_t level = 0; level + 1 < static_cast<std::size_t>(cluster.domain_count); ++level)
    most = std::max(most, std::gcd(members, cluster.domains[level].chips));
  return static_cast<double>(most);
}

/// The least seconds per byte of an all-to-all of experts: it stays in an innermost domain, or some level
/// outside joins at least two of them, and as many as a gather if it is the only one.
/// @param inside,outside bytes/s of an innermost domain, and of the fastest level outside
[[nodiscard]] constexpr double least_expert_per_byte(const ClusterSpec& cluster, double inside,
                                                     double outside, std::int64_t members,
                                                     const TokenCopies& copies) noexcept {
  const DomainSpec& innermost = cluster.domains[0];
  const auto ep = static_cast<double>(members);
  const double held = most_inside(cluster, members);
  const auto leaving = [&](double parts) {
    return GroupLevel{.inside = ep / parts,
                      .parts = parts,
                      .bandwidth = outside,
                      .along = {ep, 1},
                      .chips_inside = innermost.chips}
        .all_to_all_per_byte(copies);
  };
  const double staying = least_inside_domain(innermost, inside, ep, copies);
  return (1 - 1e-9) * (cluster.domain_count == 1                   ? staying
                       : cluster.domain_count == 2 && held < ep    ? leaving(ep / held)
                       : ep > static_cast<double>(innermost.chips) ? leaving(2)
                                                                   : std::min(staying, leaving(2)));
}

} // namespace detail

/// @brief The links of a plan.
/// @param copies of a token that are sent to experts.
[[nodiscard]] constexpr PlanLinks plan_links(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                             const TokenCopies& copies,
                                             const SharedCalibration& shared) noexcept {
  return detail::plan_links({cluster, shared}, plan, copies);
}

/// @brief A bound on the links: no order of a plan's axes gives better ones.
///
/// Whatever the placement, a gather among N ranks takes per_byte >= (1 / M_i - 1 / (M_i D_i)) / W_i at each
/// level, with M_i members in each of D_i domains; the mean of these weighted by W_i telescopes to (N - 1) /
/// N over the sum of all bandwidths. All groups stay in domains of C chips only if N divides C; if not, the
/// outermost level joins parts of at most the largest gcd(N, C) of the levels inside it, for which its own
/// term counts.
[[nodiscard]] constexpr PlanLinks least_links(const ClusterSpec& cluster, const PlanConfiguration& plan,
                                              const TokenCopies& copies,
                                              const SharedCalibration& shared) noexcept {
  const DomainSpec& innermost = cluster.domains[0];
  const double inside = innermost.bandwidth * shared.scale_up;
  double outside = 0, fastest_outside = 0, outermost = 0;
  for (std::size_t level = 1; level < static_cast<std::size_t>(cluster.domain_count); ++level) {
    outermost = cluster.domains[level].bandwidth * shared.scale_out;
    outside += outermost;
    fastest_outside = std::max(fastest_outside, outermost);
  }
  const auto gather = [&](std::int64_t members, double used) { // a bound may have fewer ranks than experts
    MessageTime out;
    if (members <= 1 || cluster.domain_count == 0)
      return out;
    const auto all = static_cast<double>(members);
    out.per_byte = (all - 1) / (all * (inside * used + outside));
    if (const double held = detail::most_inside(cluster, members); held < all)
      out.per_byte = std::max(out.per_byte, (1 - 1e-9) * (1 / held - 1 / all) / outermost);
    return out;
  };
  const double side =
      innermost.torus_dimensions == 0
          ? 0
          : detail::torus_side(static_cast<double>(innermost.chips), innermost.torus_dimensions);
  const auto along = [&](int extent) {
    return gather(extent, detail::most_used(extent, side, innermost.torus_dimensions));
  };
  PlanLinks out;
  out.tensor = along(plan.tp);
  out.context = along(plan.cp);
  out.data = gather(static_cast<std::int64_t>(plan.data_shards()), 1);
  if (copies.experts == 0)
    return out;
  out.expert_data = gather(plan.expert_dp(), 1);
  if (plan.ep > 1 && cluster.domain_count > 0)
    out.expert.per_byte = detail::least_expert_per_byte(cluster, inside, fastest_outside, plan.ep, copies);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
