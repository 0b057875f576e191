// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The distributions from which a parameter's initial values are drawn.

#include <shardwright/core/config.hpp>

#include <cstdint>
#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Initial values of a parameter: normal or uniform numbers, or a constant.
///
/// Random values depend on the seed of initialize(), the parameter's key and the element's global index: not
/// on the mesh, nor on where a pipeline is cut. By default the key is derived from the parameter's name.
struct Initial {
  double mean = 0;
  double deviation = 0; ///< Of normal numbers; 0: none.
  std::optional<std::uint64_t> key{};
  double bound = 0; ///< Of uniform numbers, from mean - bound to mean + bound; 0: none.

  [[nodiscard]] static constexpr Initial normal(double deviation) noexcept { return {0, deviation, {}}; }
  /// @brief From -bound to bound.
  [[nodiscard]] static constexpr Initial uniform(double bound) noexcept { return {0, 0, {}, bound}; }
  [[nodiscard]] static constexpr Initial constant(double value) noexcept { return {value, 0, {}}; }
  [[nodiscard]] static constexpr Initial zeros() noexcept { return constant(0); }
  [[nodiscard]] static constexpr Initial ones() noexcept { return constant(1); }
  /// @brief The same with a key of the program's choice, different from that of any other parameter.
  [[nodiscard]] constexpr Initial keyed(std::uint64_t number) const noexcept {
    return {mean, deviation, number, bound};
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
