// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Time of a collective over a mesh axis that spans several domains of a cluster.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The square root of a number of at least 1, by Newton's method from the next power of two.
template <int degree> [[nodiscard]] constexpr double root(double number) noexcept {
  double guess = 1;
  while ((degree == 2 ? guess * guess : guess * guess * guess) < number)
    guess *= 2;
  for (int step = 0; step < 8; ++step) {
    const double next =
        degree == 2 ? (guess + number / guess) / 2 : (2 * guess + number / (guess * guess)) / 3;
    if (!(next < guess * (1 - 1e-12)))
      break;
    guess = next;
  }
  return guess;
}

} // namespace detail

/// @brief Ranks along one axis: `extent` of them, `stride` ranks apart.
struct AxisGroup {
  double extent = 1;
  double stride = 1;
};

/// @brief Fraction of a domain's bandwidth that collectives achieve, inside the innermost domain and outside
/// it, where it falls with the number of domains.
struct LinkEfficiency {
  double scale_up = 1;
  double scale_out = 1;
  double falls = 0;         ///< Growth of the time per doubling of the domains that a group spans.
  double start_seconds = 0; ///< Of a collective, before its first byte.
};

/// @brief Time of one kind of message on its links: `seconds(bytes)`.
struct MessageTime {
  double per_byte = 0; ///< Seconds.
  double latency_seconds = 0;
  bool leaves = false; ///< The innermost domain.

  [[nodiscard]] constexpr double seconds(double bytes) const noexcept {
    return bytes * per_byte + latency_seconds;
  }
  [[nodiscard]] constexpr bool no_worse_than(const MessageTime& other) const noexcept {
    return per_byte <= other.per_byte * (1 + 1e-12) &&
           latency_seconds <= other.latency_seconds * (1 + 1e-12) && (!leaves || other.leaves);
  }
};

/// @brief Fraction of a chip's bandwidth in each domain of a cluster that a transfer uses when it runs alone.
using LinkShares = std::array<double, ClusterSpec::most_domains>;

/// @brief The placement of an axis on a torus of equal sides, whose dimensions are filled one after the
/// other.
struct TorusSpan {
  int dimensions = 0; ///< Dimensions along which the axis extends, wholly or partly.
  double lines = 0;   ///< The number of their links that one group has.
};

namespace detail {

/// The number of times that 1 is doubled to give a number of at least 1; a part of a doubling counts in
/// proportion.
[[nodiscard]] constexpr double doublings(double number) noexcept {
  const auto whole = static_cast<std::uint64_t>(number);
  const int all = static_cast<int>(std::bit_width(whole)) - 1;
  return all + number / static_cast<double>(std::uint64_t{1} << all) - 1;
}

/// Chips along a side of a torus of `chips`.
[[nodiscard]] constexpr double torus_side(double chips, int dimensions) noexcept {
  return dimensions < 2 ? chips : dimensions == 2 ? root<2>(chips) : root<3>(chips);
}

/// Places an axis on a torus with sides of this many chips.
///
/// In the dimension where it begins, which may also hold inner axes, neighbours are several chips apart, and
/// that many groups share the links between them ("How To Scale Your Model", section 3).
[[nodiscard]] constexpr TorusSpan torus_span(const AxisGroup& axis, double side, int dimensions) noexcept {
  constexpr double more = 1 + 1e-9, less = 1 - 1e-9; // roots are not exact
  double begin = 1;
  int first = 0;
  for (; first + 1 < dimensions && begin * side <= axis.stride * more; ++first)
    begin *= side;
  int last = first + 1;
  for (double end = begin * side; last < dimensions && end < axis.stride * axis.extent * less; ++last)
    end *= side;
  return {last - first, last - first - 1 + std::min(1.0, begin / axis.stride)};
}

/// The fewest members of a group along an axis in one domain of `chips`, among all groups of the axis.
///
/// Groups begin at multiples of extent * stride ranks, and domains at multiples of their chips. If neither
/// divides the other, some group crosses into a domain by only as many ranks as both are multiples of: of
/// five ranks in nodes of eight, the ones of the fourth group are alone in the second node.
[[nodiscard]] constexpr double least_inside(const AxisGroup& axis, std::int64_t chips) noexcept {
  const auto block = static_cast<std::int64_t>(axis.extent * axis.stride + 0.5);
  const auto stride = static_cast<std::int64_t>(axis.stride + 0.5);
  const std::int64_t common = chips % block == 0 ? block : std::gcd(block, chips); // most often the block
  return static_cast<double>(std::max<std::int64_t>(1, common / stride));
}

/// The most boundaries of such domains between the first and the last member of a group that has at least
/// `inside` members in each of them.
[[nodiscard]] constexpr double most_crossed(const AxisGroup& axis, double inside,
                                            std::int64_t chips) noexcept {
  const auto span = static_cast<std::int64_t>((axis.extent - inside) * axis.stride + 0.5);
  return std::min(axis.extent - 1, static_cast<double>((span + chips - 1) / chips));
}

/// A group over as few axes as possible, innermost first.
struct MergedGroup {
  std::array<AxisGroup, 3> axes{};
  std::size_t count = 0;

  /// Adds an axis outside the others, merged with the outermost one if it continues it.
  constexpr void add(const AxisGroup& axis) noexcept {
    if (axis.extent <= 1)
      return;
    if (count > 0 && axes[count - 1].stride * axes[count - 1].extent == axis.stride)
      axes[count - 1].extent *= axis.extent;
    else
      axes[count++] = axis;
  }
  [[nodiscard]] constexpr std::span<const AxisGroup> all() const noexcept { return {axes.data(), count}; }
};

[[nodiscard]] constexpr double ranks_of(std::span<const AxisGroup> axes) noexcept {
  double ranks = 1;
  for (const AxisGroup& axis : axes)
    ranks *= axis.extent;
  return ranks;
}

/// A domain of a cluster that a group spans, seen from the members that it has in each domain of the level
/// below.
struct GroupLevel {
  int domain = 0;
  double inside = 1;        ///< Members in each domain of the level below, the fewest if domains differ.
  double parts = 1;         ///< Of these domains, those that have members, if each has so few.
  double bandwidth = 0;     ///< Bytes/s of a rank.
  double used = 1;          ///< Fraction of a chip's links in the domain.
  int torus_dimensions = 0; ///< Dimensions along which the group extends; 0 behind a switch.
  double latency_seconds = 0;
  AxisGroup along{};             ///< The members on a single axis; none if the group has several.
  std::int64_t chips_inside = 0; ///< Of a domain of the level below; 0 if it is a chip.

  /// The most domains of the level below with members beside one of them.
  [[nodiscard]] constexpr double others() const noexcept {
    return along.extent > 1 && chips_inside > 0
               ? std::min(parts - 1, most_crossed(along, inside, chips_inside))
               : parts - 1;
  }
  /// Seconds per byte of a gather over `ranks`: in a ring of all of them, or in one of a torus, all members
  /// but one pass a byte on.
  [[nodiscard]] constexpr double gather_per_byte(double ranks) const noexcept {
    const double members = torus_dimensions > 0 ? parts : ranks;
    return (members - 1) / members / (inside * bandwidth);
  }
  /// Seconds per byte that an all-to-all keeps its links busy; a byte counts once in the total that a rank
  /// holds for all ranks.
  /// @param copies a rank's bytes go to at most this many of the domains below (the number of experts per
  /// token)
  ///
  /// Behind a switch (D - 1) / D of the bytes leave each rank; on a torus each byte passes a quarter of every
  /// line along which the group extends ("How To Scale Your Model", section 3).
  [[nodiscard]] constexpr double all_to_all_per_byte(const TokenCopies& copies) const noexcept {
    double sent = (parts - 1) / parts;
    const double beside = copies.merged ? others() : 0;
    if (beside > 0 && beside + 1 < inside * parts) {
      // One copy per domain that has any of the experts: each with probability 1 - (1 - its share)^copies.
      double absent = 1;
      for (int copy = 0; copy < copies.experts; ++copy)
        absent *= 1 - sent / beside;
      sent = std::min(beside * (1 - absent), copies.reached_of(beside + 1) * sent) / copies.experts;
    }
    if (torus_dimensions > 0) {
      double side = 1;
      while ((torus_dimensions == 1   ? side
              : torus_dimensions == 2 ? side * side
                                      : side * side * side) < parts)
        ++side;
      sent *= std::max(1.0, torus_dimensions * side / 4);
    }
    return sent / bandwidth;
  }
  /// Of an all-to-all of tokens' copies or, without any, of a gather over `ranks`.
  [[nodiscard]] constexpr double per_byte(double ranks, const TokenCopies* copies) const noexcept {
    return copies != nullptr ? all_to_all_per_byte(*copies) : gather_per_byte(ranks);
  }
};

/// The links of a cluster at the rates that collectives achieve, with the sides of its tori.
struct ClusterLinks {
  const ClusterSpec& cluster;
  LinkEfficiency efficiency;
  std::array<double, ClusterSpec::most_domains> sides{};

  constexpr ClusterLinks(const ClusterSpec& of_cluster, const SharedCalibration& shared) noexcept
      : ClusterLinks(of_cluster,
                     LinkEfficiency{shared.scale_up, shared.scale_out, shared.falls, shared.start_seconds}) {}
  constexpr ClusterLinks(const ClusterSpec& of_cluster, const LinkEfficiency& achieved) noexcept
      : cluster(of_cluster), efficiency(achieved) {
    for (std::size_t level = 0; level < static_cast<std::size_t>(cluster.domain_count); ++level)
      if (const DomainSpec& domain = cluster.domains[level]; domain.torus_dimensions > 0)
        sides[level] = torus_side(static_cast<double>(domain.chips), domain.torus_dimensions);
  }

  /// Of the bandwidth of a domain, the fraction that collectives achieve.
  [[nodiscard]] constexpr double achieved(int level) const noexcept {
    return level == 0 ? efficiency.scale_up : efficiency.scale_out;
  }
};

/// Calls `visit(GroupLevel)` for each domain that a group spans, from inner to outer.
/// @param axes with extents above 1, none of which continues another
template <class Visit>
constexpr void for_each_level(const ClusterLinks& of, std::span<const AxisGroup> axes, double ranks,
                              const Visit& visit) noexcept {
  const ClusterSpec& cluster = of.cluster;
  double inside = 1;
  for (int level = 0; level < cluster.domain_count && inside < ranks; ++level) {
    const DomainSpec& domain = cluster.domains[static_cast<std::size_t>(level)];
    const bool outermost = level + 1 == cluster.domain_count;
    const int torus = domain.torus_dimensions;
    const double side = of.sides[static_cast<std::size_t>(level)];
    double held = 1;
    TorusSpan span;
    for (const AxisGroup& axis : axes) {
      const double part = outermost ? axis.extent : least_inside(axis, domain.chips);
      held *= part;
      if (torus > 0 && part > 1) {
        const TorusSpan of_axis = torus_span({part, axis.stride}, side, torus);
        span.dimensions += of_axis.dimensions;
        span.lines += of_axis.lines;
      }
    }
    held = std::max(held, inside);
    const double parts = held / inside;
    if (parts <= 1)
      continue;
    GroupLevel out{level,
                   inside,
                   parts,
                   domain.bandwidth * of.achieved(level),
                   1,
                   0,
                   domain.latency_seconds,
                   axes.size() == 1 ? AxisGroup{held, axes[0].stride} : AxisGroup{},
                   level > 0 ? cluster.domains[static_cast<std::size_t>(level - 1)].chips : 0};
    if (torus == 0 && level > 0)
      out.bandwidth /= 1 + of.efficiency.falls * doublings(parts);
    if (torus > 0) {
      out.used = std::min(1.0, span.lines / torus);
      out.bandwidth *= out.used;
      out.torus_dimensions = std::min(torus, span.dimensions);
    }
    visit(out);
    inside = held;
  }
}

/// Time of a collective of a group: of an all-to-all of tokens' copies, whose bytes are per rank, or without
/// copies of a gather, whose bytes are those of all ranks together.
///
/// An all-gather and a reduce-scatter take as long; an all-reduce takes twice as long. All groups of an axis
/// take as long as the one with the fewest members in some domain. Behind switches a gather of B bytes over N
/// ranks is a set of rings: (N - 1) / N B pass each of their edges, including those between domains, whose M
/// members have a port each, so the gather takes B max_i (N - 1) / (N M_i W_i). On a torus it runs dimension
/// by dimension: B max_i (D_i - 1) / (D_i M_i W_i) over D_i domains at level i. A ring of ranks in several
/// domains takes N - 1 steps, each as slow as the slowest edge.
/// @param group axes with extents above 1, none of which continues another
[[nodiscard]] constexpr MessageTime group_time(const ClusterLinks& cluster, std::span<const AxisGroup> group,
                                               const TokenCopies* copies = nullptr) noexcept {
  const double ranks = ranks_of(group);
  MessageTime out;
  for_each_level(cluster, group, ranks, [&](const GroupLevel& level) {
    out.per_byte = std::max(out.per_byte, level.per_byte(ranks, copies));
    out.latency_seconds += (level.parts - 1) * level.latency_seconds;
    out.leaves = level.domain > 0;
  });
  out.latency_seconds += cluster.efficiency.start_seconds;
  return out;
}

/// The fractions of a chip's links that such a collective uses at each level if the slowest is always busy.
[[nodiscard]] constexpr LinkShares group_shares(const ClusterLinks& cluster, std::span<const AxisGroup> group,
                                                const TokenCopies* copies = nullptr) noexcept {
  const double ranks = ranks_of(group), slowest = group_time(cluster, group, copies).per_byte;
  LinkShares shares{};
  for_each_level(cluster, group, ranks, [&](const GroupLevel& level) {
    shares[static_cast<std::size_t>(level.domain)] = level.per_byte(ranks, copies) / slowest * level.used;
  });
  return shares;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
