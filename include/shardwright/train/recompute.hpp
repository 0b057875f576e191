// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The values that backward passes compute again instead of keeping them.

#include <shardwright/plan/spec/recompute.hpp>
#include <shardwright/train/tape_core.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The choice for every layer: `kind` for the first `layers` of the model, `others` for the rest.
///
/// It moves work and memory, and changes no bit of a result.
struct Recomputation {
  Recompute kind = Recompute::none;
  std::int64_t layers = std::numeric_limits<std::int64_t>::max();
  Recompute others = Recompute::none;

  /// @brief That of the layer with this number in the whole model.
  [[nodiscard]] constexpr Recompute of(std::int64_t layer) const noexcept {
    return layer < layers ? kind : others;
  }
};

namespace detail {

/// While it lives, what is recorded on a tape is computed again by its backward pass.
class RecomputeScope {
public:
  RecomputeScope(TapeCore& tape, RecomputationScope scope) : tape_(tape), before_(tape.recompute(scope)) {}
  ~RecomputeScope() { static_cast<void>(tape_.recompute(before_)); }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

private:
  TapeCore& tape_;
  RecomputationScope before_;
};

} // namespace detail

/// @brief A function of Vars of which a backward pass computes values again; see recompute().
template <class Function>
class Recomputed {
public:
  Recomputed(Recompute kind, Function&& function)
      : function_(std::forward<Function>(function)), kind_(kind) {}

  template <class X, class... Rest>
  decltype(auto) operator()(X&& x, Rest&&... rest) {
    detail::TapeCore& tape = x.tape();
    detail::RecomputationScope scope = tape.recomputation();
    if (kind_ == Recompute::full)
      scope.region = tape.new_region();
    scope.cheap = scope.cheap || kind_ == Recompute::selective;
    const detail::RecomputeScope entered(tape, scope);
    return function_(std::forward<X>(x), std::forward<Rest>(rest)...);
  }

private:
  Function function_; // or a reference, where it was given as one
  Recompute kind_;
};

/// @brief A function whose inner values are let go of after the forward pass and computed again, once, in the
/// backward pass: `recompute(block)(x)` keeps x and the result. What `block` gathers of x is gathered again.
///
/// Only what a gradient reads is computed again, in the order of the forward pass and to the same bits, since
/// random numbers are keyed by place. The function itself runs once: what it counts, it counts once, and it
/// may read any Var of the tape. `selective` lets go of the results, too, whoever reads them: for cheap
/// operations with large results, such as attention; `none` changes nothing.
template <class Function>
[[nodiscard]] Recomputed<Function> recompute(Function&& function, Recompute kind = Recompute::full) {
  return Recomputed<Function>(kind, std::forward<Function>(function));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
