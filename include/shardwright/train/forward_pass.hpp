// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Which forward pass a block runs in, as a type: the first one, its replay, or one without gradients.

#include <shardwright/core/config.hpp>

#include <concepts>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The forward pass of a microbatch in training, which runs once: what is counted is counted here.
struct FirstPass {
  static constexpr bool trains = true;
};
/// @brief The same work once more, in the backward pass, for values that were not kept.
///
/// It gives the same bits and must have no other effect (a pure region): random numbers are keyed, never
/// drawn from a running generator, and counters take no notice of it.
struct Replay {
  static constexpr bool trains = true;
};
/// @brief A forward pass without gradients: no dropout, and nothing is kept.
struct Evaluation {
  static constexpr bool trains = false;
};

/// @brief One of the three, the first argument of a block's forward.
template <class Type>
concept ForwardPass =
    std::same_as<Type, FirstPass> || std::same_as<Type, Replay> || std::same_as<Type, Evaluation>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
