// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The costs of passes and sends, and the window in which a runner issues messages ahead of time.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Time of each pass of one microbatch through one stage, in any unit.
struct PassCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double send = 0;       ///< From the moment when both ends are ready until the message has arrived.
  double overlapped = 0; ///< A forward and a backward pass overlapped; 0 means their sum.

  /// @brief The three passes, one after the other.
  [[nodiscard]] constexpr double sum() const noexcept { return forward + input_gradient + weight_gradient; }
  [[nodiscard]] constexpr double of(Pass pass) const noexcept {
    return pass == Pass::forward           ? forward
           : pass == Pass::input_gradient  ? input_gradient
           : pass == Pass::weight_gradient ? weight_gradient
                                           : input_gradient + weight_gradient;
  }
  [[nodiscard]] constexpr double of(const Step& step) const noexcept {
    return !step.overlapped ? of(step.first.pass)
           : overlapped > 0 ? overlapped
                            : of(step.first.pass) + of(step.second.pass);
  }
};

/// @brief The limits within which a pipeline runner issues its messages. A proof holds for the window it was
/// made with.
///
/// Before a step a rank starts the receives of the steps up to `receive_ahead` later. Sends to one rank and
/// of one kind (activations or gradients) are asynchronous, and send n begins after send n -
/// `sends_in_flight` has ended. A send ends after the receiver has started the matching receive.
struct MessageWindow {
  int receive_ahead = 2;   ///< At least 0.
  int sends_in_flight = 2; ///< At least 1.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
