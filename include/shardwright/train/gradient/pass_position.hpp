// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief PassPosition: the place of a backward pass among those of a step.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The place of a pass among those of a step that add to the gradients of the same parameters.
///
/// In the last one, reductions that are due once in a step start as soon as a parameter's gradient is
/// complete, so that they overlap with the rest of the pass. If no pass is said to be the last, they start in
/// GradAccumulator::finish.
enum class PassPosition : std::uint8_t { middle, last };

/// @brief The place of pass `number`, from 0, of `count`.
[[nodiscard]] constexpr PassPosition position_of_pass(std::size_t number, std::size_t count) noexcept {
  return number + 1 == count ? PassPosition::last : PassPosition::middle;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
