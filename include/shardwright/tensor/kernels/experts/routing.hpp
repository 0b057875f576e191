// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The experts that each row of logits chooses, their gates, and the gradient of the gates.

#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The scores that a router computes from logits z, and the resulting gates.
enum class RouterScores : std::uint8_t {
  chosen_softmax, ///< Choice by z, gates softmax(z of the chosen ones) (Mixtral, arXiv 2401.04088).
  softmax,        ///< Choice by s = softmax(z), gates s of the chosen ones.
  sigmoid         ///< Choice by s = sigmoid(z), gates s / sum of s, for one expert s (arXiv 2412.19437).
};

/// @brief RouterOptions in the form that kernels use.
struct RoutingRule {
  std::size_t experts = 1;
  std::size_t chosen = 1;
  RouterScores scores = RouterScores::chosen_softmax;
  bool renormalise = false;
  double scale = 1;
  std::size_t groups = 1;
  std::size_t kept_groups = 1;
  std::size_t group_terms = 1; ///< Number of largest scores of a group that are summed to its score.
};

/// @brief Maximum number of expert groups: they are marked in 64 bits.
inline constexpr std::size_t most_expert_groups = 64;

namespace detail {

/// The logarithm of a sigmoid, accurate even where the sigmoid itself would be 0.
template <class Number> SHARDWRIGHT_FUNCTION inline Number log_sigmoid(Number z) {
  return (z < 0 ? z : Number(0)) - std::log1p(std::exp(z < 0 ? z : -z));
}
template <class Number> SHARDWRIGHT_FUNCTION inline Number sigmoid_of_number(Number z) {
  const Number e = std::exp(z < 0 ? z : -z);
  return (z < 0 ? e : Number(1)) / (1 + e);
}

/// The logarithm of a score before it is normalised, and its slope.
template <class Number> struct LogScore {
  bool sigmoid;
  SHARDWRIGHT_FUNCTION Number operator()(Number z) const { return sigmoid ? log_sigmoid(z) : z; }
  SHARDWRIGHT_FUNCTION Number slope(Number z) const { return sigmoid ? sigmoid_of_number(-z) : Number(1); }
};

/// The largest number of a row and the sum of exp(number - largest).
template <class Number> struct ExponentialSum {
  Number largest;
  Number sum;

  template <class Get> SHARDWRIGHT_FUNCTION static ExponentialSum of(std::size_t count, const Get& get) {
    Number largest = get(0);
    for (std::size_t i = 1; i < count; ++i)
      largest = get(i) > largest ? get(i) : largest;
    Number sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += std::exp(get(i) - largest);
    return {largest, sum};
  }
  SHARDWRIGHT_FUNCTION Number share(Number number) const { return std::exp(number - largest) / sum; }
};

/// Iterates over candidates from best to worst without marking them: larger numbers come first, and lower
/// indices among equal ones.
template <class Number> struct BestFirst {
  Number last{};
  std::size_t place = 0;
  bool begun = false;

  /// Advances to the next candidate `get(i)`, with i in [first, end), for which `takes(i)` holds; returns
  /// whether there is one.
  template <class Takes, class Get>
  SHARDWRIGHT_FUNCTION bool next(std::size_t first, std::size_t end, const Takes& takes, const Get& get) {
    bool found = false;
    Number best{};
    std::size_t at = 0;
    for (std::size_t i = first; i < end; ++i) {
      const Number here = get(i);
      const bool after = !begun || here < last || (here == last && i > place);
      if (takes(i) && after && (!found || here > best)) {
        found = true;
        best = here;
        at = i;
      }
    }
    if (found)
      *this = {best, at, true};
    return found;
  }
};

struct TakesAll {
  SHARDWRIGHT_FUNCTION bool operator()(std::size_t) const { return true; }
};

} // namespace detail

/// @brief The first row of a block whose logits are invalid, encoded so that a maximum finds it: 0 for none.
struct RoutingFault {
  std::size_t row = 0;
  std::size_t expert = 0; ///< The expert with an invalid logit, or the number of experts if too few are left.

  [[nodiscard]] SHARDWRIGHT_FUNCTION static std::int64_t code(std::size_t row, std::size_t expert,
                                                              std::size_t rows, std::size_t experts) {
    return static_cast<std::int64_t>((rows - row) * (experts + 1) - expert);
  }
  [[nodiscard]] static RoutingFault of(std::int64_t code, std::size_t rows, std::size_t experts) {
    const std::size_t before = (static_cast<std::size_t>(code) + experts) / (experts + 1);
    return {rows - before, before * (experts + 1) - static_cast<std::size_t>(code)};
  }
};

/// @brief experts[row, slot], best first; -1 for padding.
template <class Number> struct ChooseExperts {
  static constexpr Number infinity =
      std::numeric_limits<Number>::infinity(); // a device calls no function of std
  const Number* logits;
  const float* bias;           // or null
  const std::int32_t* padding; // negative for padding, or null
  Number* scores;              // workspace, [rows, experts + groups]
  std::int32_t* experts;
  std::int64_t* fault;
  std::size_t rows;
  RoutingRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    std::int32_t* const out = experts + row * rule.chosen;
    for (std::size_t k = 0; k < rule.chosen; ++k)
      out[k] = -1;
    if (padding != nullptr && padding[row] < 0)
      return;
    Number* const own = scores + row * (rule.experts + rule.groups);
    const std::size_t odd = score(row, own);
    if (odd == rule.experts && choose(own, out))
      return;
    Kokkos::atomic_fetch_max(fault, RoutingFault::code(row, odd, rows, rule.experts));
  }

private:
  /// Computes biased scores; masked ones stay minus infinity, whatever their bias. Returns the first expert
  /// with an invalid score, else the number of experts.
  SHARDWRIGHT_FUNCTION std::size_t score(std::size_t row, Number* own) const {
    const Number* const z = logits + row * rule.experts;
    for (std::size_t e = 0; e < rule.experts; ++e)
      if (!(z[e] < infinity) || (bias != nullptr && !(std::abs(bias[e]) < infinity)))
        return e;
    detail::ExponentialSum<Number> all{0, 1};
    if (rule.scores == RouterScores::softmax)
      all = detail::ExponentialSum<Number>::of(rule.experts, [z](std::size_t e) { return z[e]; });
    for (std::size_t e = 0; e < rule.experts; ++e) {
      const Number plain = rule.scores == RouterScores::softmax   ? all.share(z[e])
                           : rule.scores == RouterScores::sigmoid ? detail::sigmoid_of_number(z[e])
                                                                  : z[e];
      own[e] = z[e] == -infinity ? -infinity : plain + (bias == nullptr ? Number(0) : Number(bias[e]));
    }
    return rule.experts;
  }

  /// Whether enough experts are left.
  SHARDWRIGHT_FUNCTION bool choose(Number* own, std::int32_t* out) const {
    const std::uint64_t kept = keep_groups(own);
    const std::size_t size = rule.experts / rule.groups;
    detail::BestFirst<Number> best;
    for (std::size_t k = 0; k < rule.chosen; ++k) {
      // The others are masked with minus infinity, not 0: a biased score may be negative.
      if (!best.next(
              0, rule.experts, [kept, size](std::size_t e) { return ((kept >> (e / size)) & 1) != 0; },
              [own](std::size_t e) { return own[e]; }) ||
          best.last == -infinity)
        return false;
      out[k] = static_cast<std::int32_t>(best.place);
    }
    return true;
  }

  SHARDWRIGHT_FUNCTION std::uint64_t keep_groups(Number* own) const {
    if (rule.groups == 1)
      return 1;
    const std::size_t size = rule.experts / rule.groups;
    Number* const of_group = own + rule.experts;
    for (std::size_t g = 0; g < rule.groups; ++g) {
      detail::BestFirst<Number> best;
      of_group[g] = 0;
      for (std::size_t i = 0; i < rule.group_terms; ++i)
        if (best.next(g * size, (g + 1) * size, detail::TakesAll{}, [own](std::size_t e) { return own[e]; }))
          of_group[g] += best.last;
    }
    std::uint64_t kept = 0;
    detail::BestFirst<Number> best;
    for (std::size_t i = 0; i < rule.kept_groups; ++i)
      if (best.next(0, rule.groups, detail::TakesAll{}, [of_group](std::size_t g) { return of_group[g]; }))
        kept |= std::uint64_t{1} << best.place;
    return kept;
  }
};

/// @brief gates[row, slot] of the chosen experts.
template <class Number> struct GatesOfExperts {
  const Number* logits;
  const std::int32_t* experts;
  Number* gates;
  RoutingRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Number* const z = logits + row * rule.experts;
    const std::int32_t* const chosen = experts + row * rule.chosen;
    Number* const out = gates + row * rule.chosen;
    if (chosen[0] < 0) {
      for (std::size_t k = 0; k < rule.chosen; ++k)
        out[k] = 0;
      return;
    }
    const Number factor = static_cast<Number>(rule.scale);
    if (rule.scores == RouterScores::sigmoid && rule.chosen == 1) {
      out[0] = factor * detail::sigmoid_of_number(z[chosen[0]]);
    } else if (rule.scores == RouterScores::softmax && !rule.renormalise) {
      const auto all = detail::ExponentialSum<Number>::of(rule.experts, [z](std::size_t e) { return z[e]; });
      for (std::size_t k = 0; k < rule.chosen; ++k)
        out[k] = factor * all.share(z[chosen[k]]);
    } else {
      const detail::LogScore<Number> log{rule.scores == RouterScores::sigmoid};
      const auto of_slot = [z, chosen, log](std::size_t k) { return log(z[chosen[k]]); };
      const auto own = detail::ExponentialSum<Number>::of(rule.chosen, of_slot);
      for (std::size_t k = 0; k < rule.chosen; ++k)
        out[k] = factor * own.share(of_slot(k));
    }
  }
};

/// @brief The gradient of all logits of a row from that of its gates.
template <class Number> struct GatesBackward {
  const Number* logits;
  const std::int32_t* experts;
  const Number* gates;
  const Number* from;
  Number* out;
  RoutingRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const Number* const z = logits + row * rule.experts;
    const std::int32_t* const chosen = experts + row * rule.chosen;
    const Number* const gate = gates + row * rule.chosen;
    const Number* const slope = from + row * rule.chosen;
    Number* const to = out + row * rule.experts;
    for (std::size_t e = 0; e < rule.experts; ++e)
      to[e] = 0;
    if (chosen[0] < 0)
      return;
    if (rule.scores == RouterScores::sigmoid && rule.chosen == 1) {
      to[chosen[0]] = slope[0] * gate[0] * detail::sigmoid_of_number(-z[chosen[0]]);
      return;
    }
    const Number factor = static_cast<Number>(rule.scale);
    Number mean = 0;
    for (std::size_t k = 0; k < rule.chosen; ++k)
      mean += gate[k] * slope[k];
    if (rule.scores == RouterScores::softmax && !rule.renormalise) {
      const auto all = detail::ExponentialSum<Number>::of(rule.experts, [z](std::size_t e) { return z[e]; });
      for (std::size_t e = 0; e < rule.experts; ++e)
        to[e] = -all.share(z[e]) * mean;
      for (std::size_t k = 0; k < rule.chosen; ++k)
        to[chosen[k]] += gate[k] * slope[k];
    } else {
      const detail::LogScore<Number> log{rule.scores == RouterScores::sigmoid};
      for (std::size_t k = 0; k < rule.chosen; ++k)
        to[chosen[k]] = gate[k] * (slope[k] - mean / factor) * log.slope(z[chosen[k]]);
    }
  }
};
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
