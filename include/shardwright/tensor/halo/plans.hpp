// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Plans of halo exchanges, which a mesh keeps.

#include <shardwright/core/config.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/layout_value.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A box of a row-major array: rows of `columns` neighbouring elements, for each index of the outer
/// dimensions.
struct ElementBox {
  static constexpr std::size_t outer_dimensions = max_tensor_rank - 2;
  std::size_t start = 0;
  std::size_t rows = 1;
  std::size_t row_stride = 0;
  std::size_t columns = 1;
  std::size_t outer[outer_dimensions] = {1, 1, 1, 1}; ///< Not std::array: device code reads it.
  std::size_t outer_stride[outer_dimensions] = {};
  std::size_t packed = 0; ///< Its first element in the packed buffer.

  [[nodiscard]] constexpr std::size_t slabs() const noexcept {
    return outer[0] * outer[1] * outer[2] * outer[3];
  }
  [[nodiscard]] constexpr std::size_t count() const noexcept { return slabs() * rows * columns; }
  /// The first element of the slab of an outer index.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t slab(std::size_t index) const noexcept {
    std::size_t at = start;
    if (index == 0) // always so in two dimensions, and divisions take longer than a short box
      return at;
    for (std::size_t d = outer_dimensions; d-- > 0; index /= outer[d])
      at += index % outer[d] * outer_stride[d];
    return at;
  }
};

/// The box of `extents` elements from `offset` on in a row-major block with the extents `whole`.
[[nodiscard]] inline ElementBox box_in(std::span<const std::int64_t> whole,
                                       std::span<const std::int64_t> offset,
                                       std::span<const std::int64_t> extents) {
  ElementBox out;
  std::size_t stride = 1;
  for (std::size_t d = whole.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(extents[d]);
    const std::size_t from_last = whole.size() - 1 - d;
    out.start += static_cast<std::size_t>(offset[d]) * stride;
    if (from_last == 0) {
      out.columns = extent;
    } else if (from_last == 1) {
      out.rows = extent;
      out.row_stride = stride;
    } else {
      out.outer[ElementBox::outer_dimensions + 1 - from_last] = extent;
      out.outer_stride[ElementBox::outer_dimensions + 1 - from_last] = stride;
    }
    stride *= static_cast<std::size_t>(whole[d]);
  }
  return out;
}

/// One side of an exchange: boxes of this rank's block, and the packed block of every rank of the group.
struct HaloSide {
  std::vector<ElementBox> boxes;
  std::vector<StridedBlock> blocks;
  std::size_t count = 0; ///< Packed elements.
};

/// The exchange of one layout and one shape on this rank.
struct HaloPlan {
  const LayoutValue* layout = nullptr; ///< Key: the constant of the layout type.
  std::array<std::int64_t, max_tensor_rank> shape{};
  unsigned mask = 0;  ///< Axes of the group.
  bool meets = false; ///< Whether the group has other ranks.
  HaloSide lent;      ///< Owned elements that other ranks copy.
  HaloSide borrowed;  ///< Halos that are copies.
  ElementBox owned;
  std::vector<ElementBox> outside; ///< Halos beyond the ends of the tensor.
};

#if !defined(SHARDWRIGHT_COMPILED)
/// Plans by layout and shape; of many shapes, the newest.
class HaloPlans {
public:
  /// The plan for a layout and a shape, made by `make` if there is none.
  template <class Make>
  [[nodiscard]] const HaloPlan& find(const LayoutValue& layout, std::span<const std::int64_t> shape,
                                     Make make) {
    for (const HaloPlan& plan : plans_) {
      bool found = plan.layout == &layout;
      for (std::size_t d = 0; d < shape.size() && found; ++d)
        found = plan.shape[d] == shape[d];
      if (found)
        return plan;
    }
    HaloPlan made = make();
    made.layout = &layout;
    std::copy(shape.begin(), shape.end(), made.shape.begin());
    plans_.reserve(most); // a plan stays in its place while it is in use
    if (plans_.size() < most)
      return plans_.emplace_back(std::move(made));
    oldest_ = (oldest_ + 1) % most;
    return plans_[oldest_] = std::move(made);
  }

private:
  static constexpr std::size_t most = 64;
  std::vector<HaloPlan> plans_;
  std::size_t oldest_ = 0;
};
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
