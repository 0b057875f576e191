// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Scales a resource of a cluster or a run, and finds from which amount on a condition holds.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The resources of a cluster or a run that may be scaled.
enum class Resource : std::uint8_t {
  memory,
  scale_up_bandwidth,
  scale_out_bandwidth,
  peak,
  tokens,
  domain, ///< Chips of the innermost domain; the cluster keeps its chips.
  chips   ///< Of the cluster; the run keeps its batch.
};
inline constexpr std::array<std::string_view, 7> resource_names{"memory per chip",
                                                                "bandwidth inside a domain",
                                                                "bandwidth between domains",
                                                                "FLOP/s per chip",
                                                                "tokens per step",
                                                                "chips of a domain",
                                                                "chips"};

/// @brief A cluster and a run.
struct Situation {
  ClusterSpec cluster{};
  RunSpec run{};
  friend constexpr bool operator==(const Situation&, const Situation&) = default;
};

namespace detail {

[[nodiscard]] constexpr std::int64_t nearest_whole(double value) noexcept {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(value + 0.5));
}

/// Rebuilds the domains of a cluster for the given number of chips and size of the innermost domain, without
/// the levels between that would not nest.
[[nodiscard]] constexpr ClusterSpec laid_out(const ClusterSpec& of, std::int64_t domain, std::int64_t chips) {
  ClusterSpec out = of;
  const auto last = static_cast<std::size_t>(of.domain_count - 1);
  DomainSpec outermost =
      last > 0 ? of.domains[last] : scale_out_domain(of.chip, of.chip.scale_out_bandwidth, chips);
  outermost.chips = chips;
  out.domains[0].chips = std::min(domain, chips);
  std::size_t count = 1;
  for (std::size_t level = 1; level < last; ++level)
    if (const std::int64_t each = of.domains[level].chips;
        each > domain && each < chips && each % out.domains[count - 1].chips == 0 && chips % each == 0)
      out.domains[count++] = of.domains[level];
  if (domain < chips)
    out.domains[count++] = outermost;
  out.domain_count = static_cast<int>(count);
  return out;
}

} // namespace detail

/// @brief Returns the amount of a resource: bytes, bytes/s per chip in one direction, FLOP/s in bf16, tokens
/// or chips. Bandwidth between domains is 0 if there is only one.
[[nodiscard]] constexpr double amount_of(const Situation& situation, Resource resource) noexcept {
  const ClusterSpec& cluster = situation.cluster;
  switch (resource) {
  case Resource::memory:
    return cluster.chip.memory_bytes;
  case Resource::scale_up_bandwidth:
    return cluster.domains[0].bandwidth;
  case Resource::scale_out_bandwidth:
    return cluster.domain_count < 2
               ? 0
               : cluster.domains[static_cast<std::size_t>(cluster.domain_count - 1)].bandwidth;
  case Resource::peak:
    return cluster.chip.peak_bf16;
  case Resource::tokens:
    return static_cast<double>(situation.run.tokens());
  case Resource::domain:
    return static_cast<double>(cluster.domains[0].chips);
  case Resource::chips:
    return static_cast<double>(cluster.chips());
  }
  return 0;
}

/// @brief The situation with `factor` times as much of a resource.
/// @param factor above 0; sequences and chips are rounded to the nearest whole number.
[[nodiscard]] constexpr Situation with_more(const Situation& now, Resource resource, double factor) {
  Situation out = now;
  const ClusterSpec& cluster = now.cluster;
  const std::int64_t domain = cluster.domains[0].chips;
  switch (resource) {
  case Resource::memory:
    out.cluster.chip.memory_bytes *= factor;
    break;
  case Resource::scale_up_bandwidth:
    out.cluster.domains[0].bandwidth *= factor;
    break;
  case Resource::scale_out_bandwidth:
    for (std::size_t level = 1; level < static_cast<std::size_t>(cluster.domain_count); ++level)
      out.cluster.domains[level].bandwidth *= factor;
    break;
  case Resource::peak:
    out.cluster.chip.peak_bf16 *= factor;
    out.cluster.chip.peak_fp8 *= factor;
    out.cluster.chip.peak_fp4 *= factor;
    break;
  case Resource::tokens:
    out.run.sequences = detail::nearest_whole(static_cast<double>(now.run.sequences) * factor);
    break;
  case Resource::domain:
    out.cluster = detail::laid_out(
        cluster, std::min(cluster.chips(), detail::nearest_whole(static_cast<double>(domain) * factor)),
        cluster.chips());
    break;
  case Resource::chips: // a cluster within one domain fills the domain that its chips usually have
    out.cluster = detail::laid_out(
        cluster,
        cluster.domain_count > 1 ? domain
                                 : std::max(domain, static_cast<std::int64_t>(cluster.chip.scale_up_chips)),
        detail::nearest_whole(static_cast<double>(cluster.chips()) * factor));
    break;
  }
  return out;
}

/// @brief Returns whether a resource is continuous, rather than a whole number subject to divisibility.
[[nodiscard]] constexpr bool is_continuous(Resource resource) noexcept {
  return resource != Resource::tokens && resource != Resource::domain && resource != Resource::chips;
}

namespace detail {

/// Finds, to 2% and by bisection, where a condition begins to hold that fails at `low` and holds at `high`.
template <class Condition>
[[nodiscard]] double begins_to_hold(double low, double high, const Condition& holds) {
  while (high / low > 1.02) {
    const double middle = std::sqrt(low * high);
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

/// The smallest factor of a resource, from 1 up, at which a condition on the situation holds; nothing if it
/// holds at none up to `most`. Accurate to 2%; for whole numbers, powers of two are tried.
template <class Condition>
[[nodiscard]] std::optional<double> least_factor(const Situation& now, Resource resource, double most,
                                                 const Condition& holds) {
  const auto holds_at = [&](double factor) { return holds(with_more(now, resource, factor)); };
  double high = 1;
  while (!holds_at(high))
    if (high *= 2; high > most)
      return {};
  return high == 1 || !is_continuous(resource) ? high : begins_to_hold(high / 2, high, holds_at);
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
