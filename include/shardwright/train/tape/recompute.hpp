// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Recomputation: values that backward passes compute again instead of keeping them.

#include <shardwright/plan/spec/recompute.hpp>
#include <shardwright/train/tape/core.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The choice for every layer: `kind` for the first `layers` of the model, `others` for the rest.
///
/// It trades work for memory, and leaves the results bitwise unchanged.
struct Recomputation {
  Recompute kind = Recompute::none;
  std::int64_t layers = std::numeric_limits<std::int64_t>::max();
  Recompute others = Recompute::none;

  /// @brief The kind for the layer with this index in the whole model.
  [[nodiscard]] constexpr Recompute of(std::int64_t layer) const noexcept {
    return layer < layers ? kind : others;
  }
};

namespace detail {

/// During its lifetime, nodes recorded on a tape are marked for recomputation.
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

/// @brief A function of Vars whose values a backward pass recomputes; see recompute().
template <class Function> class Recomputed {
public:
  Recomputed(Recompute kind, Function&& function)
      : function_(std::forward<Function>(function)), kind_(kind) {}

  template <class X, class... Rest> decltype(auto) operator()(X&& x, Rest&&... rest) {
    detail::TapeCore& tape = x.tape();
    detail::RecomputationScope scope = tape.recomputation();
    if (kind_ == Recompute::full)
      scope.region = tape.new_region();
    scope.cheap = scope.cheap || kind_ == Recompute::selective;
    const detail::RecomputeScope entered(tape, scope);
    return function_(std::forward<X>(x), std::forward<Rest>(rest)...);
  }

private:
  Function function_; // or a reference, if it was passed as one
  Recompute kind_;
};

/// @brief A function whose inner values are released after the forward pass and recomputed, once, in the
/// backward pass: `recompute(block)(x)` keeps x and the result.
///
/// If `block` gathers x, it is gathered again. Only values that a gradient reads are recomputed, in the order
/// of the forward pass and bitwise the same, since random numbers are keyed by position. The function itself
/// runs once, so what it counts is counted once, and it may read any Var of the tape. `selective` releases
/// the results as well, whatever reads them: for cheap operations with large results, such as attention;
/// `none` changes nothing.
template <class Function>
[[nodiscard]] Recomputed<Function> recompute(Function&& function, Recompute kind = Recompute::full) {
  return Recomputed<Function>(kind, std::forward<Function>(function));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
