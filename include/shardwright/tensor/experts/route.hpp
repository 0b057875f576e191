// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The route of tokens to their experts and back, which rows grouped by expert carry in their shape.

#include <shardwright/core/kept_memory.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/tensor/local_extents.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One dispatch: which rows this rank sends and receives, and their positions. Made once, in the forward
/// pass; the way back, and all later passes, use the same route.
///
/// A pair of a token and one of its slots is numbered token * slots + slot. Sent rows are ordered by expert,
/// then by that number; received ones by rank; grouped ones by expert, rank, and number.
struct ExpertRoute {
  explicit ExpertRoute(const KeptMemory& memory)
      : first_rows(memory), leaf_rows(memory), sent_rows(memory), received_rows(memory) {}

  std::int64_t experts = 0; ///< Of the whole layer.
  std::int64_t tokens = 0;  ///< Of this rank.
  std::int64_t slots = 0;   ///< Maximum number of experts per token.
  unsigned owners = 0;      ///< Mesh axes that own the experts.
  std::int64_t ranks = 1;   ///< Ranks with which this rank exchanges rows, itself included.
  std::int64_t spread = 1;  ///< Ranks over which the tokens are split.

  KeptVector<std::int64_t> first_rows; ///< First row of each of this rank's experts, and the end.
  /// On a Reproducible target, where the rows of each leaf of tokens begin, by expert, and the end: the rows
  /// between two form a term of the gradient of one expert's weights.
  KeptVector<std::int64_t> leaf_rows;
  KeptVector<StridedBlock> sent_rows;     ///< By rank of the group; rows of length 1.
  KeptVector<StridedBlock> received_rows; ///< The same for received rows.

  BufferHandle pairs;  ///< int32: the pair of each sent row.
  BufferHandle places; ///< int32: the sent row of each pair, or -1.
  BufferHandle groups; ///< int32: the grouped row of each received one; none if nothing is exchanged.

  [[nodiscard]] std::int64_t rows() const noexcept { return first_rows.back(); }
  [[nodiscard]] std::int64_t sent() const noexcept {
    std::int64_t sum = 0;
    for (const StridedBlock& block : sent_rows)
      sum += static_cast<std::int64_t>(block.count());
    return sum;
  }
  [[nodiscard]] bool exchanges() const noexcept { return ranks > 1; }
  [[nodiscard]] const std::int32_t* pair() const { return static_cast<const std::int32_t*>(pairs.data()); }
  [[nodiscard]] const std::int32_t* place() const { return static_cast<const std::int32_t*>(places.data()); }
  [[nodiscard]] const std::int32_t* group() const { return static_cast<const std::int32_t*>(groups.data()); }
};

/// The shape of rows grouped by expert. Ranks that share tokens have the same number of rows; others may not,
/// so the extents are those of a tensor in which every rank had as many rows as this one.
class RaggedShape {
public:
  RaggedShape() = default;
  RaggedShape(std::shared_ptr<const ExpertRoute> route, std::int64_t columns)
      : extents_{route->rows() * route->spread, columns}, route_(std::move(route)) {}

  [[nodiscard]] const ExpertRoute& route() const noexcept { return *route_; }
  [[nodiscard]] const std::shared_ptr<const ExpertRoute>& shared_route() const noexcept { return route_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return extents_[1]; }
  [[nodiscard]] RaggedShape with_columns(std::int64_t columns) const { return {route_, columns}; }
  [[nodiscard]] std::int64_t operator[](std::size_t dimension) const noexcept { return extents_[dimension]; }

  [[nodiscard]] const std::int64_t* data() const noexcept { return extents_.data(); }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return data() + size(); }
  [[nodiscard]] static constexpr std::size_t size() noexcept { return 2; }

  [[nodiscard]] bool one_dispatch(const RaggedShape& other) const noexcept { return route_ == other.route_; }
  friend bool operator==(const RaggedShape&, const RaggedShape&) = default;

private:
  std::array<std::int64_t, 2> extents_{};
  std::shared_ptr<const ExpertRoute> route_;
};

template <class LayoutType>
[[nodiscard]] std::array<std::int64_t, 2> local_shape_of(const MeshCore& core, const RaggedShape& shape) {
  const AxisBinding binding = bind_axes(core, LayoutType::axes);
  return {shape.route().rows(), block_at(LayoutType::value, 1, binding, shape.columns()).size};
}
[[nodiscard]] inline std::size_t product(const RaggedShape& shape) noexcept {
  return static_cast<std::size_t>(shape[0] * shape[1]);
}

template <class LayoutType> struct ShapeOf {
  using type = std::array<std::int64_t, static_cast<std::size_t>(LayoutType::tensor_rank)>;
};
template <class LayoutType>
requires is_ragged<LayoutType>
struct ShapeOf<LayoutType> {
  using type = RaggedShape;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
