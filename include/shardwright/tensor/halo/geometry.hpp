// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The neighbours of a rank in every direction, and the boxes that they exchange for halos.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/halo/plans.hpp>
#include <shardwright/tensor/local_extents.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What a rank exchanges to fill the halos of a layout, which the mesh keeps.
/// @throws InvalidArgument on every rank if a halo is wider than a block that fills it.
[[nodiscard]] const HaloPlan& halo_plan(MeshCore& core, const LayoutValue& layout,
                                        std::span<const std::string_view> axes,
                                        std::span<const std::int64_t> shape, SourceLocation where);

#if !defined(SHARDWRIGHT_COMPILED)
/// The halos of one layout and shape bound to a mesh. Every halo element has one owner, in one of the
/// 3^dimensions - 1 directions, which sends it directly: corners need no second round.
class HaloGeometry {
public:
  using Extents = std::array<std::int64_t, max_tensor_rank>;

  HaloGeometry(const MeshCore& core, const LayoutValue& layout, std::span<const std::string_view> axes,
               const Extents& shape, SourceLocation where)
      : core_(core), layout_(layout), binding_(bind_axes(core, axes)), shape_(shape), where_(where) {
    for (int d = 0; d < layout.tensor_rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      size_[i] = block_at(layout, i, binding_, shape[i]).size;
      extents_[i] = size_[i] + layout.halo(d).width();
      if (layout.halo(d).empty())
        continue;
      for (const int axis : layout.shard(d))
        if (extent(axis) > 1) {
          mask_ |= 1u << mesh_axis(axis);
          group_ *= extent(axis);
        }
    }
  }

  [[nodiscard]] HaloPlan plan() const {
    for (int d = 0; d < layout_.tensor_rank; ++d)
      if (!layout_.halo(d).empty())
        check_width(d);
    HaloPlan plan;
    plan.mask = mask_;
    plan.meets = group_ > 1;
    plan.owned = box([](int) { return 0; }, false);
    add_sides(plan);
    for (int d = 0; d < layout_.tensor_rank; ++d)
      for (const int side : {-1, 1})
        if (width(d, side) > 0 && position_beside(d, side) < 0)
          plan.outside.push_back(slab(d, side));
    return plan;
  }

private:
  using Direction = std::array<int, max_tensor_rank>;

  [[nodiscard]] int extent(int axis) const { return binding_.extents[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int mesh_axis(int axis) const { return binding_.mesh_axis[static_cast<std::size_t>(axis)]; }

  /// Width of the halo on one side of a block.
  [[nodiscard]] std::int64_t width(int dimension, int side) const {
    const DimensionHalo& halo = layout_.halo(dimension);
    return side < 0 ? halo.before() : halo.after();
  }
  [[nodiscard]] int parts(int dimension) const {
    int out = 1;
    for (const int axis : layout_.shard(dimension))
      out *= extent(axis);
    return out;
  }
  /// Index of this rank's block along a dimension.
  [[nodiscard]] int position(int dimension) const {
    int out = 0;
    for (const int axis : layout_.shard(dimension))
      out = out * extent(axis) + binding_.coordinates[static_cast<std::size_t>(axis)];
    return out;
  }
  /// The index of the neighbouring block on one side, or -1 beyond the ends.
  [[nodiscard]] int position_beside(int dimension, int side) const {
    const int count = parts(dimension);
    const int at = position(dimension) + side;
    if (layout_.halo(dimension).periodic())
      return (at + count) % count;
    return at >= 0 && at < count ? at : -1;
  }
  /// Sets the coordinates of a dimension's axes to those of a block.
  void place(int dimension, int at, std::array<int, max_axes>& coordinates) const {
    const AxisSequence& axes = layout_.shard(dimension);
    for (int i = axes.count; i-- > 0; at /= extent(axes[i]))
      coordinates[static_cast<std::size_t>(axes[i])] = at % extent(axes[i]);
  }

  void check_width(int dimension) const {
    const DimensionHalo& halo = layout_.halo(dimension);
    const int count = parts(dimension);
    for (int at = 0; at < count; ++at) {
      std::array<int, max_axes> coordinates = binding_.coordinates;
      place(dimension, at, coordinates);
      const std::int64_t size = dimension_block(layout_, dimension, binding_.extents, coordinates,
                                                shape_[static_cast<std::size_t>(dimension)])
                                    .size;
      // A block fills the halo before its successor, and the one after its predecessor.
      std::int64_t wanted = 0;
      if (halo.periodic() || at + 1 < count)
        wanted = halo.before();
      if (halo.periodic() || at > 0)
        wanted = std::max<std::int64_t>(wanted, halo.after());
      if (wanted <= size)
        continue;
      throw InvalidArgument(
          "Halo: a halo must be no wider than the blocks that fill it, but that of dimension " +
              std::to_string(dimension) + " is " + std::to_string(wanted) + " wide and block " +
              std::to_string(at) + " of " + std::to_string(count) + " has " + std::to_string(size) +
              (size == 1 ? " element" : " elements") +
              " (shard the dimension over fewer ranks, or give it a larger extent or a narrower Halo)",
          {.rank = core_.world().rank(), .operation = "exchange_halos", .where = where_});
    }
  }

  /// Rank in the group, in mesh order, of the neighbour in a direction; -1 if there is none.
  [[nodiscard]] int neighbour(const Direction& direction) const {
    std::array<int, max_axes> coordinates = binding_.coordinates;
    for (int d = 0; d < layout_.tensor_rank; ++d) {
      if (direction[static_cast<std::size_t>(d)] == 0)
        continue;
      const int at = position_beside(d, direction[static_cast<std::size_t>(d)]);
      if (at < 0)
        return -1;
      place(d, at, coordinates);
    }
    int rank = 0;
    for (int outer = 0; outer < core_.axis_count(); ++outer)
      for (int axis = 0; axis < max_axes; ++axis)
        if ((mask_ >> outer & 1u) != 0 && names(axis) && mesh_axis(axis) == outer)
          rank = rank * extent(axis) + coordinates[static_cast<std::size_t>(axis)];
    return rank;
  }
  /// Whether an axis of the table shards a dimension with a halo.
  [[nodiscard]] bool names(int axis) const {
    const int dimension = layout_.dimension_of(axis);
    return dimension >= 0 && !layout_.halo(dimension).empty();
  }

  /// Owned elements that the neighbour in a direction copies (`lent`), or the halo in that direction.
  template <class Direct> [[nodiscard]] ElementBox box(Direct direction, bool lent) const {
    Extents offset{};
    Extents extents{};
    for (int d = 0; d < layout_.tensor_rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      const std::int64_t before = layout_.halo(d).before();
      const int side = direction(d);
      if (side == 0) {
        offset[i] = before;
        extents[i] = size_[i];
      } else if (lent) { // the neighbour's halo on the opposite side
        extents[i] = width(d, -side);
        offset[i] = side < 0 ? before : before + size_[i] - extents[i];
      } else {
        extents[i] = width(d, side);
        offset[i] = side < 0 ? 0 : before + size_[i];
      }
    }
    return box_of(offset, extents);
  }
  /// The halo on one side, corners included.
  [[nodiscard]] ElementBox slab(int dimension, int side) const {
    Extents offset{};
    Extents extents = extents_;
    const auto i = static_cast<std::size_t>(dimension);
    extents[i] = width(dimension, side);
    offset[i] = side < 0 ? 0 : extents_[i] - extents[i];
    return box_of(offset, extents);
  }

  [[nodiscard]] ElementBox box_of(const Extents& offset, const Extents& extents) const {
    const auto rank = static_cast<std::size_t>(layout_.tensor_rank);
    ElementBox out = box_in(std::span(extents_).first(rank), std::span(offset).first(rank),
                            std::span(extents).first(rank));
    if (out.columns == out.row_stride) { // whole rows are one run
      out.columns *= out.rows;
      out.rows = 1;
    }
    return out;
  }

  /// Boxes in the order of the sender's directions: several may go to one rank.
  void add_sides(HaloPlan& plan) const {
    std::vector<int> lent_to;
    std::vector<int> borrowed_from;
    int directions = 1;
    for (int d = 0; d < layout_.tensor_rank; ++d)
      directions *= 3;
    for (int code = 0; code < directions; ++code) {
      Direction direction{};
      bool moves = false;
      bool exists = true;
      for (int d = 0, rest = code; d < layout_.tensor_rank; ++d, rest /= 3) {
        const int side = rest % 3 - 1;
        direction[static_cast<std::size_t>(d)] = side;
        moves = moves || side != 0;
        exists = exists && (side == 0 || width(d, -side) > 0);
      }
      if (!moves || !exists)
        continue;
      Direction back = direction;
      for (int& side : back)
        side = -side;
      if (const int to = neighbour(direction); to >= 0) {
        plan.lent.boxes.push_back(box([&](int d) { return direction[static_cast<std::size_t>(d)]; }, true));
        lent_to.push_back(to);
      }
      if (const int from = neighbour(back); from >= 0) {
        plan.borrowed.boxes.push_back(box([&](int d) { return back[static_cast<std::size_t>(d)]; }, false));
        borrowed_from.push_back(from);
      }
    }
    pack(plan.lent, lent_to);
    pack(plan.borrowed, borrowed_from);
  }

  /// Gives every rank of the group one packed block.
  void pack(HaloSide& side, const std::vector<int>& ranks) const {
    for (int rank = 0; rank < group_; ++rank) {
      const std::size_t first = side.count;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (ranks[i] == rank) {
          side.boxes[i].packed = side.count;
          side.count += side.boxes[i].count();
        }
      side.blocks.push_back(contiguous_block(first, side.count - first));
    }
  }

  const MeshCore& core_;
  const LayoutValue& layout_;
  AxisBinding binding_;
  Extents shape_;
  SourceLocation where_;
  Extents size_{};    ///< Owned elements of each dimension.
  Extents extents_{}; ///< With halos.
  unsigned mask_ = 0;
  int group_ = 1;
};

SHARDWRIGHT_INLINE const HaloPlan& halo_plan(MeshCore& core, const LayoutValue& layout,
                                             std::span<const std::string_view> axes,
                                             std::span<const std::int64_t> shape, SourceLocation where) {
  return core.part<HaloPlans>().find(layout, shape, [&] {
    std::array<std::int64_t, max_tensor_rank> extents{};
    std::copy(shape.begin(), shape.end(), extents.begin());
    return HaloGeometry(core, layout, axes, extents, where).plan();
  });
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
