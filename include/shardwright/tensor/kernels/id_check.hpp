// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How kernels note a token id that is beyond the vocabulary.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/token_order.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The ids in a rank's block, and their vocabulary.
struct IdBlock {
  std::int64_t vocabulary = 0;
  std::int32_t target = 0; ///< Whether they are the targets of a loss.
  std::int32_t dimensions = 0;
  Kokkos::Array<std::int64_t, max_tensor_rank> offset{}, extent{}; ///< Of the block.
  RowOrder order{};                                                ///< Of the last dimension.

  /// @brief The place in the whole tensor of the id with index `token` in the block.
  [[nodiscard]] std::array<std::int64_t, max_tensor_rank> place(std::int64_t token) const {
    std::array<std::int64_t, max_tensor_rank> out{};
    for (auto d = static_cast<std::size_t>(dimensions); d-- > 0; token /= extent[d]) {
      out[d] = offset[d] + token % extent[d];
      if (d + 1 == static_cast<std::size_t>(dimensions))
        out[d] = static_cast<std::int64_t>(order.position_in_text(static_cast<std::size_t>(token / extent[d]),
                                                                  static_cast<std::size_t>(out[d])));
    }
    return out;
  }
};

/// @brief A token id beyond the vocabulary, and its index in the block.
struct IdFault {
  std::int32_t found = 0;
  std::int32_t id = 0;
  std::int64_t token = 0;
  IdBlock ids;
};

/// @brief The ids of a block, and where the first one beyond the vocabulary is noted: in memory that the
/// kernels and the host can access. It checks nothing without such memory.
struct IdCheck {
  IdFault* fault = nullptr;
  IdBlock ids;

  /// @brief Checks the id with index `token` in the block.
  SHARDWRIGHT_FUNCTION void operator()(std::int32_t id, std::size_t token) const {
    if (fault == nullptr || (id >= 0 && id < ids.vocabulary))
      return;
    if (Kokkos::atomic_compare_exchange(&fault->found, std::int32_t{0}, std::int32_t{1}) != 0)
      return;
    fault->id = id;
    fault->token = static_cast<std::int64_t>(token);
    fault->ids = ids; // the host finds the place: kernels stay small
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
