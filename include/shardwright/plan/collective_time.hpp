// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Time of a collective over one mesh axis that lies across the domains of a cluster.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cluster_spec.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A group of ranks: `extent` of them, `stride` ranks apart.
struct AxisGroup {
  double extent = 1;
  double stride = 1;
};

/// @brief Share of a domain's bandwidth that collectives reach, inside the innermost domain and outside.
struct LinkEfficiency {
  double scale_up = 1;
  double scale_out = 1;
};

/// @brief How a group lies in the domains and what a rank can send in each; all that its collectives need.
///
/// Members of a group in one domain are assumed to be as many as its size allows. Hierarchical collectives
/// over D_i domains at level i, whose members below send together, take B max_i (D_i - 1) / (D_i W_i): each
/// rank carries a part of the bytes that leave its domain (planner formulas of NCCL's rings).
struct GroupLinks {
  double per_byte = 0;                                           ///< max_i (D_i - 1) / (D_i W_i).
  double latency_seconds = 0;                                    ///< Sum of (D_i - 1) latencies.
  std::array<double, ClusterSpec::most_domains> members{};       ///< D_i.
  std::array<double, ClusterSpec::most_domains> bandwidth{};     ///< Bytes/s of a rank at level i.
  std::array<double, ClusterSpec::most_domains> part{};          ///< Of a chip's links in the domain, used.
  std::array<int, ClusterSpec::most_domains> torus_dimensions{}; ///< That it lies along; 0 at a switch.
  std::array<int, ClusterSpec::most_domains> domain{};           ///< Of the cluster, that level i is.
  int levels = 0;
};

/// @brief Share of a chip's bandwidth in every domain of a cluster that a transfer takes while it runs alone.
using LinkShares = std::array<double, ClusterSpec::most_domains>;

/// @brief Dimensions of a torus of `chips` that a group of `extent` neighbours lies along.
[[nodiscard]] constexpr int torus_dimensions_of(double extent, double chips, int dimensions) noexcept {
  if (dimensions < 2 || (dimensions == 2 ? extent * extent : extent * extent * extent) <= chips)
    return 1;
  return dimensions == 3 && extent * extent * extent <= chips * chips ? 2 : dimensions;
}

/// @brief Lays a group over the domains of a cluster.
[[nodiscard]] constexpr GroupLinks links_of(const ClusterSpec& cluster, const AxisGroup& group,
                                            const LinkEfficiency& efficiency) noexcept {
  GroupLinks links;
  double inside = 1; // members in one domain of the level below
  for (int level = 0; level < cluster.domain_count && inside < group.extent; ++level) {
    const DomainSpec& domain = cluster.domains[static_cast<std::size_t>(level)];
    const bool outermost = level + 1 == cluster.domain_count;
    const double reach = static_cast<double>(domain.chips) / group.stride;
    const double held = outermost ? group.extent : std::clamp(reach, inside, group.extent);
    const double parts = held / inside;
    if (parts <= 1)
      continue;
    const auto at = static_cast<std::size_t>(links.levels++);
    double rate = domain.bandwidth * (level == 0 ? efficiency.scale_up : efficiency.scale_out);
    links.part[at] = 1;
    links.domain[at] = level;
    if (const int torus = domain.torus_dimensions; torus > 0) {
      const int used = torus_dimensions_of(held, static_cast<double>(domain.chips), torus);
      links.part[at] = static_cast<double>(used) / torus;
      rate *= links.part[at];
      links.torus_dimensions[at] = used;
    }
    links.members[at] = parts;
    links.bandwidth[at] = rate;
    links.per_byte = std::max(links.per_byte, (parts - 1) / (parts * inside * rate));
    links.latency_seconds += (parts - 1) * domain.latency_seconds;
    inside = held;
  }
  return links;
}

/// @brief Seconds of an all-gather or a reduce-scatter of `bytes` in all; an all-reduce takes twice that.
[[nodiscard]] constexpr double gather_seconds(const GroupLinks& links, double bytes) noexcept {
  return bytes * links.per_byte + links.latency_seconds;
}

namespace detail {

/// Seconds that an all-to-all keeps the links of one level busy.
[[nodiscard]] constexpr double all_to_all_seconds_at(const GroupLinks& links, std::size_t level, double bytes,
                                                     int copies) noexcept {
  const double parts = links.members[level];
  double sent = bytes * (parts - 1) / parts;
  if (level > 0) { // one copy per domain that has any of the experts: parts (1 - (1 - 1/parts)^copies)
    double absent = 1;
    for (int copy = 0; copy < copies; ++copy)
      absent *= 1 - 1 / parts;
    sent *= parts * (1 - absent) / copies;
  }
  if (const int dimensions = links.torus_dimensions[level]; dimensions > 0) {
    double side = 1;
    while ((dimensions == 1 ? side : dimensions == 2 ? side * side : side * side * side) < parts)
      ++side;
    sent *= std::max(1.0, dimensions * side / 4);
  }
  return sent / links.bandwidth[level];
}

/// What every level of a group takes of a chip's links, where the slowest level is busy all the time.
template <class SecondsAt>
[[nodiscard]] constexpr LinkShares shares_of(const GroupLinks& links, const SecondsAt& seconds_at) noexcept {
  double slowest = 0;
  for (std::size_t level = 0; level < static_cast<std::size_t>(links.levels); ++level)
    slowest = std::max(slowest, seconds_at(level));
  LinkShares shares{};
  for (std::size_t level = 0; level < static_cast<std::size_t>(links.levels); ++level)
    shares[static_cast<std::size_t>(links.domain[level])] = seconds_at(level) / slowest * links.part[level];
  return shares;
}

} // namespace detail

/// @brief Seconds of an all-to-all where each rank holds `bytes` for all ranks together.
/// @param copies a rank's bytes go to at most so many domains of each level (tokens with so many experts).
///
/// Behind a switch (D - 1) / D of the bytes leave each rank; on a torus each byte passes a quarter of every
/// line that the group lies along ("How To Scale Your Model", section 3).
[[nodiscard]] constexpr double all_to_all_seconds(const GroupLinks& links, double bytes,
                                                  int copies) noexcept {
  double seconds = 0;
  for (std::size_t level = 0; level < static_cast<std::size_t>(links.levels); ++level)
    seconds = std::max(seconds, detail::all_to_all_seconds_at(links, level, bytes, copies));
  return seconds + links.latency_seconds;
}

/// @brief What an all-gather or a reduce-scatter takes of a chip's links.
[[nodiscard]] constexpr LinkShares gather_shares(const GroupLinks& links) noexcept {
  double inside = 1;
  std::array<double, ClusterSpec::most_domains> seconds{};
  for (std::size_t level = 0; level < static_cast<std::size_t>(links.levels); ++level) {
    const double parts = links.members[level];
    seconds[level] = (parts - 1) / (parts * inside * links.bandwidth[level]);
    inside *= parts;
  }
  return detail::shares_of(links, [&](std::size_t level) { return seconds[level]; });
}

/// @brief What an all-to-all takes of a chip's links.
[[nodiscard]] constexpr LinkShares all_to_all_shares(const GroupLinks& links, int copies) noexcept {
  return detail::shares_of(
      links, [&](std::size_t level) { return detail::all_to_all_seconds_at(links, level, 1, copies); });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
