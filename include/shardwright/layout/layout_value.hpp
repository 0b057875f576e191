// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A layout as a plain constexpr value over a table of axes; all layout algorithms work on it.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>

#include <array>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

inline constexpr int max_axes = 8;        ///< Axes that one layout or transition may name.
inline constexpr int max_tensor_rank = 6; ///< Dimensions of a tensor.

/// @brief A short list of axis indices, outermost first if it shards a dimension.
struct AxisSequence {
  std::array<int, max_axes> items{};
  int count = 0;

  [[nodiscard]] constexpr int size() const noexcept { return count; }
  [[nodiscard]] constexpr bool empty() const noexcept { return count == 0; }
  [[nodiscard]] constexpr int operator[](int position) const {
    return items[static_cast<std::size_t>(position)];
  }
  [[nodiscard]] constexpr int back() const { return items[static_cast<std::size_t>(count - 1)]; }
  [[nodiscard]] constexpr const int* begin() const noexcept { return items.data(); }
  [[nodiscard]] constexpr const int* end() const noexcept { return items.data() + count; }

  constexpr void push_back(int axis) { items[static_cast<std::size_t>(count++)] = axis; }
  /// @brief Removes the last axis; its slot is cleared, so that equal lists compare equal.
  constexpr void pop_back() { items[static_cast<std::size_t>(--count)] = 0; }
  [[nodiscard]] constexpr bool contains(int axis) const {
    for (int i = 0; i < count; ++i)
      if (items[static_cast<std::size_t>(i)] == axis)
        return true;
    return false;
  }

  friend constexpr bool operator==(const AxisSequence&, const AxisSequence&) = default;
};

/// @brief Elements of its neighbours' blocks that a rank's block carries along one dimension.
///
/// A single number, because compilers copy many layouts.
struct DimensionHalo {
  static constexpr int most = (1 << 14) - 1; ///< Widest on one side.
  int code = 0;

  [[nodiscard]] static constexpr DimensionHalo of(int before, int after, bool periodic) {
    return {before | after << 14 | (periodic ? 1 << 28 : 0)};
  }
  [[nodiscard]] constexpr int before() const noexcept { return code & most; }
  [[nodiscard]] constexpr int after() const noexcept { return code >> 14 & most; }
  /// @brief Whether the dimension is periodic.
  [[nodiscard]] constexpr bool periodic() const noexcept { return code >> 28 != 0; }
  [[nodiscard]] constexpr bool empty() const noexcept { return code == 0; }
  /// @brief Elements by which a block is longer.
  [[nodiscard]] constexpr int width() const noexcept { return before() + after(); }

  friend constexpr bool operator==(const DimensionHalo&, const DimensionHalo&) = default;
};

/// @brief The axes that shard each dimension, and those over which the tensor is Partial.
///
/// Axes are indices into a separate table of names. An axis that is neither in a shard list nor partial is
/// replicated.
struct LayoutValue {
  int tensor_rank = 0;
  std::array<AxisSequence, max_tensor_rank> shards{}; ///< Per dimension, major to minor.
  std::array<bool, max_axes> partial{};               ///< Per axis.
  std::array<ReduceOp, max_axes> ops{};               ///< Per axis; `sum` if the axis is not partial.
  std::array<DimensionHalo, max_tensor_rank> halos{}; ///< Per dimension.

  [[nodiscard]] constexpr const AxisSequence& shard(int dimension) const {
    return shards[static_cast<std::size_t>(dimension)];
  }
  [[nodiscard]] constexpr AxisSequence& shard(int dimension) {
    return shards[static_cast<std::size_t>(dimension)];
  }
  [[nodiscard]] constexpr const DimensionHalo& halo(int dimension) const {
    return halos[static_cast<std::size_t>(dimension)];
  }
  [[nodiscard]] constexpr DimensionHalo& halo(int dimension) {
    return halos[static_cast<std::size_t>(dimension)];
  }
  /// @brief Whether blocks carry elements of their neighbours.
  [[nodiscard]] constexpr bool has_halos() const {
    for (const DimensionHalo& one : halos)
      if (!one.empty())
        return true;
    return false;
  }
  /// @brief The layout of the elements that the ranks own.
  [[nodiscard]] constexpr LayoutValue without_halos() const {
    LayoutValue out = *this;
    out.halos = {};
    return out;
  }
  [[nodiscard]] constexpr bool is_partial(int axis) const { return partial[static_cast<std::size_t>(axis)]; }
  /// @brief Operation of a partial axis.
  [[nodiscard]] constexpr ReduceOp op(int axis) const { return ops[static_cast<std::size_t>(axis)]; }
  /// @brief Returns whether any axis is partial.
  [[nodiscard]] constexpr bool has_partial() const {
    for (const bool is : partial)
      if (is)
        return true;
    return false;
  }
  /// @brief Dimension that the axis shards, or -1.
  [[nodiscard]] constexpr int dimension_of(int axis) const {
    for (int d = 0; d < tensor_rank; ++d)
      if (shard(d).contains(axis))
        return d;
    return -1;
  }
  [[nodiscard]] constexpr bool is_replicated(int axis) const {
    return !is_partial(axis) && dimension_of(axis) < 0;
  }

  constexpr void set_partial(int axis, ReduceOp operation) {
    partial[static_cast<std::size_t>(axis)] = true;
    ops[static_cast<std::size_t>(axis)] = operation;
  }
  constexpr void clear_partial(int axis) {
    partial[static_cast<std::size_t>(axis)] = false;
    ops[static_cast<std::size_t>(axis)] = ReduceOp::sum;
  }

  friend constexpr bool operator==(const LayoutValue&, const LayoutValue&) = default;
};

/// @brief The same layout over another table: axis i becomes map[i]; an axis with map[i] < 0 is dropped.
template <class Map>
[[nodiscard]] constexpr LayoutValue remap_axes(const LayoutValue& layout, const Map& map) {
  LayoutValue out;
  out.tensor_rank = layout.tensor_rank;
  out.halos = layout.halos;
  for (int d = 0; d < layout.tensor_rank; ++d)
    for (const int axis : layout.shard(d))
      if (map[static_cast<std::size_t>(axis)] >= 0)
        out.shard(d).push_back(map[static_cast<std::size_t>(axis)]);
  for (int axis = 0; axis < max_axes; ++axis)
    if (layout.is_partial(axis) && map[static_cast<std::size_t>(axis)] >= 0)
      out.set_partial(map[static_cast<std::size_t>(axis)], layout.op(axis));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
