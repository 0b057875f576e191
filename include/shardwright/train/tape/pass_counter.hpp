// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counters that count every microbatch once, despite recomputation.

#include <shardwright/core/error.hpp>
#include <shardwright/train/tape/first_pass.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Counts that forward passes add to, such as tokens per expert.
///
/// `counter.add(x.first_pass(), amounts)` counts every microbatch once: a replay and an evaluation have no
/// first pass. Not shared between threads.
template <class Number = double> class PassCounter {
public:
  explicit PassCounter(std::size_t size) : values_(size) {}

  /// @brief Adds `amounts`, one for each number; nothing if there is no first pass.
  /// @throws InvalidArgument if their number differs.
  template <class Pass, class... Amounts> void add(const Pass& pass, const Amounts&... amounts) {
    constexpr bool knows_its_pass =
        std::is_same_v<Pass, FirstPass> || std::is_same_v<Pass, std::optional<FirstPass>>;
    static_assert(
        knows_its_pass,
        "PassCounter: add() must be given the FirstPass, or a replay would count again (pass first_pass() of the tape or of a Var on it)");
    if constexpr (std::is_same_v<Pass, FirstPass>)
      add_now(amounts...);
    else if constexpr (knows_its_pass)
      if (pass)
        add_now(amounts...);
  }

  [[nodiscard]] std::span<const Number> values() const noexcept { return values_; }
  /// @brief Begins the next step.
  void restart() { std::fill(values_.begin(), values_.end(), Number{}); }

private:
  void add_now(std::span<const Number> amounts) {
    if (amounts.size() != values_.size()) {
      throw InvalidArgument("PassCounter: add() must get one amount for each of its " +
                            std::to_string(values_.size()) + " numbers, but got " +
                            std::to_string(amounts.size()) + " (make the counter as large)");
    }
    std::transform(amounts.begin(), amounts.end(), values_.begin(), values_.begin(),
                   [](Number amount, Number value) { return static_cast<Number>(value + amount); });
  }

  std::vector<Number> values_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
