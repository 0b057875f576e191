// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The best plans over a range of a resource: their utilisation, and the pipeline that each amount
/// needs.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/plan/search/bounds.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/searches.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The best plans for one amount of the resource that a sweep varies.
struct SweepPoint {
  double factor = 1; ///< Relative to the amount of the cluster and the run.
  Situation at{};
  Plan best{};
  Plan without_pipeline{}; ///< `best` if that has pp = 1, else the result of a search with pp = 1.
};

/// @brief The points of a sweep, smallest amount first.
struct Sweep {
  Resource resource{};
  std::vector<SweepPoint> points;
  /// The factor from which on no best plan has a pipeline; nothing if the last one has, or if none has.
  std::optional<double> pipeline_ends{};

  [[nodiscard]] double amount(const SweepPoint& point) const { return amount_of(point.at, resource); }
};

/// @brief Factors of a resource worth including in a sweep, in ascending order, 1 among them.
///
/// Powers of two: for a continuous resource an eighth to 64 times its amount; for a domain two chips and
/// more, if they divide the cluster, and the whole cluster; for tokens and chips a sixteenth to 16 times, in
/// whole numbers, chips in whole domains.
/// @throws InvalidArgument if there is none of the resource, such as no network between domains.
[[nodiscard]] inline std::vector<double> sweep_factors(const Situation& now, Resource resource) {
  const double amount = amount_of(now, resource);
  if (!(amount > 0))
    throw InvalidArgument("Sweep: the cluster must have what the sweep varies, but it has no " +
                          std::string(resource_names[static_cast<std::size_t>(resource)]) +
                          " (vary the bandwidth inside a domain)");
  std::vector<double> out;
  if (is_continuous(resource)) {
    for (int power = -3; power <= 6; ++power)
      out.push_back(std::exp2(power));
    return out;
  }
  const auto whole = [](double value) { return value >= 1 && value == std::floor(value); };
  const std::int64_t chips = now.cluster.chips(), domain = now.cluster.domains[0].chips;
  const int powers = resource == Resource::domain ? 40 : 4;
  for (int power = -powers; power <= powers; ++power) {
    const double factor = std::exp2(power), value = amount * factor;
    const double sequences = static_cast<double>(now.run.sequences) * factor;
    const bool possible =
        resource == Resource::tokens ? whole(sequences)
        : resource == Resource::domain
            ? value > 1 && value < static_cast<double>(chips) && whole(static_cast<double>(chips) / value)
            : value <= static_cast<double>(domain) || whole(value / static_cast<double>(domain));
    if (whole(resource == Resource::tokens ? sequences : value) && possible)
      out.push_back(factor);
  }
  if (resource == Resource::domain)
    out.push_back(static_cast<double>(chips) / amount);
  return out;
}

namespace detail {

/// Whether a search with less memory ends with the same plan: the chosen plan and the fastest one still fit.
/// The others take as long as before or, if they must recompute more, longer.
[[nodiscard]] inline bool still_fits(const FinishedSearch& ended, const ModelSpec& model, const Situation& at,
                                     const SearchSpace& space) {
  const double capacity = SearchInput(model, at.cluster, at.run, space).capacity();
  if (!ended.best.found() || ended.best.cost.memory.total() > capacity)
    return false;
  for (const SearchCandidate& one : ended.state.fastest)
    if (one.measure == ended.state.best_seconds)
      return evaluate(model, at.cluster, at.run, one.plan).memory.total() <= capacity;
  return false;
}

} // namespace detail

/// @brief The best plans at each factor of a resource, and the factor from which on they have no pipeline: to
/// 2% if the resource is continuous, else one of the factors.
///
/// Takes two searches per factor, fewer of memory, and at most six to find where the pipeline ends.
/// @param factors in ascending order: of memory, a point may take the result of a search at the next one
/// @throws InvalidArgument if the factors do not ascend.
[[nodiscard]] inline Sweep sweep(Searches& searches, const Situation& now, Resource resource,
                                 const std::vector<double>& factors, const SearchSpace& space = {}) {
  for (std::size_t i = 1; i < factors.size(); ++i)
    if (!(factors[i - 1] < factors[i]))
      throw InvalidArgument("Sweep: the factors must ascend, but " + number_text(factors[i], 6) +
                            " follows " + number_text(factors[i - 1], 6) +
                            " (sort them, and name each once)");
  const auto no_pipeline = [](const Plan& plan) { return plan.found() && plan.configuration.pp == 1; };
  Sweep out{resource, {}, {}};
  out.points.resize(factors.size());
  const FinishedSearch *above = nullptr, *above_flat = nullptr; // at the next factor
  for (std::size_t i = factors.size(); i-- > 0;) {
    SweepPoint& point = out.points[i];
    point = {factors[i], with_more(now, resource, factors[i]), {}, {}};
    const auto fits = [&](const FinishedSearch* ended) {
      return resource == Resource::memory && ended != nullptr &&
             detail::still_fits(*ended, searches.model(), point.at, space);
    };
    if (!fits(above))
      above = &searches.of(point.at, space);
    point.best = point.without_pipeline = above->best;
    if (no_pipeline(point.best))
      continue;
    if (!fits(above_flat))
      above_flat = &searches.without_pipeline(point.at, space);
    point.without_pipeline = above_flat->best;
  }
  std::size_t flat_from = out.points.size();
  while (flat_from > 0 && no_pipeline(out.points[flat_from - 1].best))
    --flat_from;
  if (flat_from == 0 || flat_from == out.points.size())
    return out;
  out.pipeline_ends = factors[flat_from];
  if (is_continuous(resource))
    out.pipeline_ends =
        detail::begins_to_hold(factors[flat_from - 1], factors[flat_from], [&](double factor) {
          return searches.needs_no_pipeline(with_more(now, resource, factor), space);
        });
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
