// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The transposition of a square of host registers.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cstddef>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// In register `row` and the one `distance` after it, exchanges the lanes of the first that have the bit
/// `distance` in their number with those of the second that lack it.
template <std::size_t distance, std::size_t row, class Register, std::size_t... lane>
SHARDWRIGHT_FUNCTION inline void exchange_lanes(Register (&rows)[sizeof...(lane)],
                                                std::index_sequence<lane...>) {
  if constexpr ((row & distance) == 0) {
    // Compilers make one shuffle of such a list; their builtins for shuffles differ.
    const Register first = rows[row];
    const Register second = rows[row + distance];
    rows[row] = Register{((lane & distance) != 0 ? second[lane ^ distance] : first[lane])...};
    rows[row + distance] = Register{((lane & distance) != 0 ? second[lane] : first[lane ^ distance])...};
  }
}

/// Lane j of register i becomes lane i of register j: each distance exchanges one bit of a lane's number with
/// that of its register's.
template <std::size_t distance = 1, class Register, std::size_t... row>
SHARDWRIGHT_FUNCTION inline void transpose_registers([[maybe_unused]] Register (&rows)[sizeof...(row)],
                                                     [[maybe_unused]] std::index_sequence<row...> all) {
#if !defined(__CUDA_ARCH__) // where no kernel calls it
  (exchange_lanes<distance, row>(rows, all), ...);
  if constexpr (2 * distance < sizeof...(row))
    transpose_registers<2 * distance>(rows, all);
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
