// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief FirstPass: what says that a microbatch is seen for the first time, and trained on.

#include <shardwright/core/config.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {
class TapeCore;
}

/// @brief The forward pass of a microbatch in training, which runs once: what is counted is counted here.
///
/// Only a tape hands it out, by `first_pass()` of the tape or of a Var on it, and not while a backward pass
/// computes values again, nor in an evaluation.
class FirstPass {
  friend class detail::TapeCore;
  constexpr FirstPass() noexcept {} // not of an aggregate, which anybody could make
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
