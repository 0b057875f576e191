// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An array with a run-time length that every compiler can use in constant expressions.

#include <shardwright/core/config.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Value-initialised elements in plain memory.
///
/// A std::vector will not do: that of libstdc++ 12 initialises memory in ways that clang rejects in constant
/// expressions, and each access costs several of the evaluation steps that compilers limit.
template <class Element> struct FixedArray {
  constexpr explicit FixedArray(std::size_t count) : items(new Element[count]()), size(count) {}
  constexpr ~FixedArray() { delete[] items; }
  FixedArray(const FixedArray&) = delete;
  FixedArray& operator=(const FixedArray&) = delete;

  Element* const items;
  const std::size_t size;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
