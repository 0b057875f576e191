// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An array of a length that is known late, which every compiler can use in constant expressions.

#include <shardwright/core/config.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// So many elements, value-initialised, as plain memory.
///
/// A std::vector will not do: the one of libstdc++ 12 fills memory in ways that clang does not accept in
/// constant expressions, and each access through it costs several of the steps that compilers limit.
template <class Element>
struct FixedArray {
  constexpr explicit FixedArray(std::size_t count) : items(new Element[count]()), size(count) {}
  constexpr ~FixedArray() { delete[] items; }
  FixedArray(const FixedArray&) = delete;
  FixedArray& operator=(const FixedArray&) = delete;

  Element* const items;
  const std::size_t size;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
