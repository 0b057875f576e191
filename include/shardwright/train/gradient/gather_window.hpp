// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Prefetches the weights of a stage's units before their use.

#include <shardwright/schedule/action.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The units of a stage, 0 to size - 1, whose weights are read together, in the order of its passes.
///
/// While one is in use, the next two are being gathered, across the end of a pass into the next one. Up to
/// three uses are held, so that a layer which two passes read alternately keeps its weights.
class GatherWindow {
public:
  GatherWindow() = default;
  /// @param last_backward the last unit whose weights a backward pass reads
  GatherWindow(std::size_t size, std::size_t last_backward) : size_(size), last_backward_(last_backward) {}

  void expect_pass(std::optional<Pass> next) noexcept { next_pass_ = next; }
  [[nodiscard]] std::size_t last_backward() const noexcept { return last_backward_; }

  /// Advances to a unit: calls start(unit) for gathers to start, and release(unit) for those started in vain.
  template <class Start, class Release>
  void advance(std::size_t unit, bool backward, Start start, Release release) {
    if (ahead_[0].unit == unit) {
      const bool entered = ahead_[0].next_pass;
      ahead_ = {ahead_[1], ahead_[2], Place{}};
      for (Place& place : ahead_)
        place.next_pass = place.next_pass && !entered;
    } else {
      for (Place& wrong : ahead_)
        if (const std::size_t none = std::exchange(wrong, {}).unit; none != no_unit)
          release(none);
      start(unit);
    }
    for (std::size_t i = 0; i < ahead_.size(); ++i) {
      if (i == 2 && ahead_[0].unit != ahead_[1].unit)
        break;
      if (ahead_[i].unit != no_unit)
        continue;
      ahead_[i] = after(i == 0 ? Place{unit, backward, false} : ahead_[i - 1]);
      if (ahead_[i].unit != no_unit)
        start(ahead_[i].unit);
    }
  }

private:
  static constexpr std::size_t no_unit = ~std::size_t{0};
  struct Place {
    std::size_t unit = no_unit;
    bool backward = false;
    bool next_pass = false; // of the pass after the current one
  };

  /// The first unit that a pass reads.
  [[nodiscard]] std::size_t first_of(Pass pass) const noexcept {
    if (pass == Pass::weight_gradient || size_ == 0)
      return no_unit;
    if (pass == Pass::forward)
      return 0;
    return last_backward_ < size_ ? size_ - 1 : no_unit;
  }
  /// The last unit of a pass is followed by the first of the next one.
  [[nodiscard]] Place after(const Place& at) const noexcept {
    if (at.unit == no_unit)
      return {};
    if (at.backward ? at.unit > last_backward_ : at.unit + 1 < size_)
      return {at.backward ? at.unit - 1 : at.unit + 1, at.backward, at.next_pass};
    if (at.next_pass || !next_pass_)
      return {};
    return {first_of(*next_pass_), *next_pass_ != Pass::forward, true};
  }

  std::size_t size_ = 0;
  std::size_t last_backward_ = 0;
  std::optional<Pass> next_pass_;
  std::array<Place, 3> ahead_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
