// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How kernels note a token id that is beyond the vocabulary.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/token_order.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief A token id beyond the vocabulary, and its place in the whole tensor of ids.
struct IdFault {
  std::int32_t found = 0;
  std::int32_t id = 0;
  std::int64_t vocabulary = 0;
  std::int32_t target = 0; ///< Whether it was the target of a loss.
  std::int32_t dimensions = 0;
  Kokkos::Array<std::int64_t, max_tensor_rank> place{};
};

/// @brief The vocabulary of the ids in a rank's block, and where the first id beyond it is noted: in memory
/// that the kernels and the host can access. It checks nothing without such memory.
struct IdCheck {
  IdFault* fault = nullptr;
  std::int64_t vocabulary = 0;
  std::int32_t target = 0;
  std::int32_t dimensions = 0;
  Kokkos::Array<std::int64_t, max_tensor_rank> offset{}, extent{}; ///< Of the block.
  RowOrder order{};                                                ///< Of the last dimension.

  /// @brief Checks the id with index `token` in the block.
  SHARDWRIGHT_FUNCTION void operator()(std::int32_t id, std::size_t token) const {
    if (fault != nullptr && (id < 0 || id >= vocabulary))
      note(id, static_cast<std::int64_t>(token));
  }

private:
  SHARDWRIGHT_FUNCTION void note(std::int32_t id, std::int64_t token) const {
    if (Kokkos::atomic_compare_exchange(&fault->found, std::int32_t{0}, std::int32_t{1}) != 0)
      return;
    fault->id = id;
    fault->vocabulary = vocabulary;
    fault->target = target;
    fault->dimensions = dimensions;
    for (int d = dimensions - 1; d >= 0; --d) {
      const std::int64_t own = token % extent[static_cast<std::size_t>(d)];
      token /= extent[static_cast<std::size_t>(d)];
      const std::int64_t at = offset[static_cast<std::size_t>(d)] + own;
      fault->place[static_cast<std::size_t>(d)] =
          d == dimensions - 1 ? static_cast<std::int64_t>(order.position(static_cast<std::size_t>(at))) : at;
    }
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
