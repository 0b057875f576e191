// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A Fourier transform of one rank's block, as libraries take it: extents and strides.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Which elements go in and come out; the sign of the exponent is negative for forward and from_real.
enum class TransformKind : std::uint8_t { forward, inverse, from_real, to_real };

/// An extent with the strides of input and output, in their elements.
struct TransformExtent {
  std::int64_t count = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
  auto operator<=>(const TransformExtent&) const = default;
};

/// A list of them.
struct TransformExtents {
  int count = 0;
  std::array<TransformExtent, max_tensor_rank> each{};
  void add(const TransformExtent& extent) { each[static_cast<std::size_t>(count++)] = extent; }
  auto operator<=>(const TransformExtents&) const = default;
};

/// All lines along a dimension of a block: `outer` groups of `inner` neighbours.
struct TransformLines {
  std::int64_t count; ///< Elements of a line, `inner` apart.
  std::int64_t inner;
  std::int64_t outer;
};

/// A transform of contiguous row-major blocks over some dimensions, repeated over the others. It is also the
/// key of its plan.
struct TransformProblem {
  TransformKind kind = TransformKind::forward;
  bool in_place = false;
  bool aligned = true;
  TransformExtents transformed;
  TransformExtents repeated;
  auto operator<=>(const TransformProblem&) const = default;

  /// The lines along transformed dimension `index`, counted from the fastest.
  [[nodiscard]] TransformLines lines(int index) const {
    const TransformExtent& along = transformed.each[static_cast<std::size_t>(index)];
    std::int64_t all = 1;
    for (int i = 0; i < repeated.count; ++i)
      all *= repeated.each[static_cast<std::size_t>(i)].count;
    for (int i = 0; i < transformed.count; ++i)
      all *= i == index ? 1 : transformed.each[static_cast<std::size_t>(i)].count;
    return {along.count, along.out, all / along.out};
  }
};

/// The transform of a block over the dimensions for which `is_transformed`. Of a real block, a dimension of n
/// elements has n / 2 + 1 complex ones.
/// @param in, out local extents of both sides
template <std::size_t rank, class IsTransformed>
[[nodiscard]] TransformProblem transform_problem(TransformKind kind, const std::array<std::int64_t, rank>& in,
                                                 const std::array<std::int64_t, rank>& out,
                                                 IsTransformed is_transformed) {
  TransformProblem problem;
  problem.kind = kind;
  TransformExtent stride;
  bool merges = false; // with the repeated dimension that was added last
  for (std::size_t d = rank; d-- > 0;) {
    const bool real_in = kind == TransformKind::from_real;
    const std::int64_t count = is_transformed(static_cast<int>(d)) && real_in ? in[d] : out[d];
    if (is_transformed(static_cast<int>(d))) {
      problem.transformed.add({count, stride.in, stride.out});
      merges = false;
    } else if (merges) {
      problem.repeated.each[static_cast<std::size_t>(problem.repeated.count - 1)].count *= count;
    } else {
      problem.repeated.add({count, stride.in, stride.out});
      merges = true;
    }
    stride.in *= in[d];
    stride.out *= out[d];
  }
  return problem;
}

/// The library of transforms of an execution space; specialized by the headers of libraries. It has
/// `transform(execution, problem, in, out)`, and says whether that of kind to_real may write to its input.
template <class Execution> struct TransformLibrary { static constexpr bool available = false; };

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
