// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The actions of a pipeline's ranks: passes of one microbatch through one stage, single or
/// overlapped.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A pass of one microbatch through one stage; `backward` combines the two gradient passes.
enum class Pass : std::uint8_t {
  forward,         ///< F: consumes the activation of the previous stage.
  backward,        ///< B: both gradients at once.
  input_gradient,  ///< I: the gradient that the previous stage waits for.
  weight_gradient, ///< W: the gradient of the stage's own parameters, any time after its I.
};

/// @brief Letter of a pass: F, B, I or W.
[[nodiscard]] constexpr char letter_of(Pass pass) noexcept { return "FBIW"[static_cast<int>(pass)]; }

/// @brief Returns whether a pass adds to the gradients of the stage's parameters, after which the microbatch
/// is no longer kept.
[[nodiscard]] constexpr bool makes_weight_gradient(Pass pass) noexcept {
  return pass == Pass::backward || pass == Pass::weight_gradient;
}

/// @brief One pass of one microbatch through one stage; stages count along the model, 0 .. stages - 1.
struct Action {
  Pass pass = Pass::forward;
  int stage = 0;
  int microbatch = 0;

  friend constexpr bool operator==(const Action&, const Action&) = default;
};

/// @brief One step in a rank's order: an action, or two overlapped actions.
struct Step {
  Action first{};
  Action second{};         ///< Used only if `overlapped`.
  bool overlapped = false; ///< The `&` pairs of DualPipe: both inputs are waited for, then both run together.

  /// @brief One, or two where overlapped.
  [[nodiscard]] constexpr int size() const noexcept { return overlapped ? 2 : 1; }
  [[nodiscard]] constexpr const Action& operator[](int index) const noexcept {
    return index == 0 ? first : second;
  }

  friend constexpr bool operator==(const Step& left, const Step& right) noexcept {
    return left.overlapped == right.overlapped && left.first == right.first &&
           (!left.overlapped || left.second == right.second);
  }
};

namespace detail {

/// Returns whether an order, given by `bool next(Step&)`, has no forward pass after or together with a
/// backward pass.
template <class Cursor> [[nodiscard]] constexpr bool forwards_come_first(Cursor cursor) {
  bool backward = false;
  for (Step step; cursor.next(step);) {
    if (step.overlapped || (backward && step.first.pass == Pass::forward))
      return false;
    backward = step.first.pass != Pass::forward;
  }
  return true;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
