// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counts of chosen experts, and the row losses and gradients that balance them.

#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/experts/routing.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/loss_factor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Adds to counts[group, expert] and, after the experts, to the number of tokens of the group.
struct CountExperts {
  const std::int32_t* chosen_experts; // [rows, chosen], negative for padding
  std::int64_t* counts;               // [groups, experts + 1]
  std::size_t rows_of_group;
  std::size_t chosen;
  std::size_t experts;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const std::int32_t* const own = chosen_experts + row * chosen;
    if (own[0] < 0)
      return;
    std::int64_t* const to = counts + row / rows_of_group * (experts + 1);
    // Integers: the order changes nothing.
    for (std::size_t k = 0; k < chosen; ++k)
      Kokkos::atomic_fetch_add(to + own[k], std::int64_t{1});
    Kokkos::atomic_fetch_add(to + experts, std::int64_t{1});
  }
};

namespace detail {

/// The probabilities of a row: softmax of logits, or sigmoids over their sum.
template <class Number> struct RowProbabilities {
  const Number* z;
  LogScore<Number> log;
  ExponentialSum<Number> all;

  SHARDWRIGHT_FUNCTION RowProbabilities(const Number* logits, std::size_t experts, bool sigmoid)
      : z(logits), log{sigmoid},
        all(ExponentialSum<Number>::of(experts, [&](std::size_t e) { return log(z[e]); })) {}
  SHARDWRIGHT_FUNCTION Number operator()(std::size_t e) const { return all.share(log(z[e])); }
};

} // namespace detail

/// @brief loss = sum over experts of weight x probability, with weight = coefficient x experts x count /
/// (chosen x tokens of the group); the gradient, if requested, may overwrite the logits.
template <class Number> struct BalanceRows {
  const Number* logits;
  const std::int32_t* chosen_experts;
  const std::int64_t* counts;
  double* losses;
  Number* gradient; // or null
  std::size_t rows_of_group;
  std::size_t chosen;
  std::size_t experts;
  double coefficient;
  bool sigmoid;
  LossFactor factor_of_loss;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const std::int64_t* const count = counts + row / rows_of_group * (experts + 1);
    losses[row] = 0;
    const bool counted = chosen_experts[row * chosen] >= 0 && count[experts] > 0;
    const double factor = counted ? coefficient * static_cast<double>(experts) /
                                        (static_cast<double>(chosen) * static_cast<double>(count[experts]))
                                  : 0;
    const detail::RowProbabilities<Number> p(logits + row * experts, experts, sigmoid);
    double loss = 0;
    if (counted)
      for (std::size_t e = 0; e < experts; ++e)
        loss += factor * static_cast<double>(count[e]) * static_cast<double>(p(e));
    losses[row] = loss;
    if (gradient == nullptr)
      return;
    Number* const to = gradient + row * experts;
    const double scale = factor_of_loss.value();
    for (std::size_t e = 0; e < experts; ++e) {
      const Number slope = p.log.slope(p.z[e]);
      to[e] = counted ? static_cast<Number>(scale * (factor * static_cast<double>(count[e]) - loss)) * p(e) *
                            slope
                      : Number(0);
    }
  }
};

/// @brief Losses as loss_term(), so that their sum does not depend on the order.
struct RoundLosses {
  double* losses;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    losses[row] = shardwright::detail::loss_term(losses[row]);
  }
};

/// @brief loss = coefficient x (logarithm of the sum of exponentials)^2.
template <class Number> struct RouterZRows {
  const Number* logits;
  const std::int32_t* chosen_experts;
  double* losses;
  Number* gradient; // or null; it may be that of the logits
  std::size_t chosen;
  std::size_t experts;
  double coefficient;
  LossFactor factor_of_loss;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    const bool counted = chosen_experts[row * chosen] >= 0;
    const detail::RowProbabilities<Number> p(logits + row * experts, experts, false);
    const double logarithm =
        counted ? static_cast<double>(p.all.largest) + std::log(static_cast<double>(p.all.sum)) : 0;
    losses[row] = coefficient * logarithm * logarithm;
    if (gradient == nullptr)
      return;
    const auto factor = static_cast<Number>(2 * coefficient * logarithm * factor_of_loss.value());
    Number* const to = gradient + row * experts;
    for (std::size_t e = 0; e < experts; ++e)
      to[e] = counted ? factor * p(e) : Number(0);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
