// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief FirstPass: proof that a training microbatch is being processed for the first time.

#include <shardwright/core/config.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {
class TapeCore;
}

/// @brief Represents the forward pass of a microbatch in training, which runs exactly once, so that counters
/// count there.
///
/// Only a tape provides it, by `first_pass()` of the tape or of a Var on it, but not while a backward pass
/// recomputes values, nor in an evaluation.
class FirstPass {
  friend class detail::TapeCore;
  constexpr FirstPass() noexcept {} // prevents aggregate initialisation, which anyone could use
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
