// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counters that see every microbatch once, whatever is recomputed.

#include <shardwright/core/error.hpp>
#include <shardwright/train/forward_pass.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Numbers that forward passes add to, such as tokens per expert.
///
/// A block runs the same code in its first pass and in a replay and hands over the pass that it was given:
/// only a first pass counts, and the type decides. Not shared between threads.
template <class Number = double>
class PassCounter {
public:
  explicit PassCounter(std::size_t size) : values_(size) {}

  /// @brief Adds `amounts`, one for each number. @throws InvalidArgument for another count of them.
  void add(FirstPass, std::span<const Number> amounts) {
    if (amounts.size() != values_.size()) {
      throw InvalidArgument("PassCounter: add() must get one amount for each of its " +
                            std::to_string(values_.size()) + " numbers, but got " +
                            std::to_string(amounts.size()) + " (make the counter as large)");
    }
    std::transform(amounts.begin(), amounts.end(), values_.begin(), values_.begin(),
                   [](Number amount, Number value) { return static_cast<Number>(value + amount); });
  }
  /// @brief Nothing: the first pass has counted.
  constexpr void add(Replay, std::span<const Number>) const noexcept {}
  /// @brief Nothing: only training counts.
  constexpr void add(Evaluation, std::span<const Number>) const noexcept {}

  /// @brief Anything without a pass: a sentence.
  template <class First, class... Rest>
  requires(!ForwardPass<First>) void add(const First&, const Rest&...) {
    static_assert(
        ForwardPass<First>,
        "PassCounter: add() must be told the pass that it is in, or a replay would count again (hand over the FirstPass, Replay or Evaluation that the block was given)");
  }

  [[nodiscard]] std::span<const Number> values() const noexcept { return values_; }
  /// @brief Opens the next step.
  void restart() { std::fill(values_.begin(), values_.end(), Number{}); }

private:
  std::vector<Number> values_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
