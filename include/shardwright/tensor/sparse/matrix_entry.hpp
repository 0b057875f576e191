// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An entry of a sparse matrix.

#include <shardwright/core/config.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One entry of a sparse matrix, by global indices from 0.
template <class Element> struct MatrixEntry {
  std::int64_t row = 0;
  std::int64_t column = 0;
  Element value = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
