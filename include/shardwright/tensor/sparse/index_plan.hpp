// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Which elements of a vector a rank reads from others, and which ones others read from it.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/integers.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/local_extents.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What lists of 32 bits can number on one rank.
inline constexpr std::int64_t most_local_indices = std::numeric_limits<std::int32_t>::max();

/// The blocks of a vector on the ranks that share it; none of an extent that fault_of_extent refuses.
class VectorBlocks {
public:
  VectorBlocks(const MeshCore& core, const LayoutValue& layout, std::span<const std::string_view> axes,
               std::int64_t extent);

  /// The axes of the group that shares the vector.
  [[nodiscard]] unsigned mask() const noexcept { return mask_; }
  /// Ranks of the group.
  [[nodiscard]] std::size_t ranks() const noexcept { return blocks_.size(); }
  [[nodiscard]] std::int64_t extent() const noexcept { return extent_; }
  [[nodiscard]] const DimensionBlock& own() const noexcept { return blocks_[own_]; }
  [[nodiscard]] bool owns(std::int64_t index) const noexcept {
    return index >= own().offset && index - own().offset < own().size;
  }
  /// The rank of the group that owns an element. @pre the vector has it
  [[nodiscard]] std::size_t owner_of(std::int64_t index) const {
    const auto after =
        std::upper_bound(filled_.begin(), filled_.end(), index, [&](std::int64_t wanted, std::size_t rank) {
          return wanted < blocks_[rank].offset;
        });
    return *(after - 1);
  }

private:
  std::int64_t extent_;
  unsigned mask_ = 0;
  std::size_t own_ = 0;
  std::vector<DimensionBlock> blocks_; // of every rank of the group
  std::vector<std::size_t> filled_;    // ranks with elements, by the first of them
};

/// Throws on every rank of a group if one of them has a fault: that of the first such rank. Collective.
void require_no_fault(const HostCommunicator& ranks, const char* operation, const std::string& own_fault,
                      SourceLocation where);

/// What is wrong with an extent that is negative, or of which a rank would hold too much; alike on all ranks.
/// Empty if there is nothing.
[[nodiscard]] std::string fault_of_extent(std::int64_t extent, std::size_t ranks, const char* what);

/// Values in the order of the ranks that they come from, and how many each rank sent.
template <class Value> struct ArrivedValues {
  std::vector<Value> values;
  std::vector<StridedBlock> blocks;
};

/// Sends block r of `values` to rank r of a group. Collective; two all_to_alls.
template <class Value>
[[nodiscard]] ArrivedValues<Value> exchange_values(HostCommunicator& ranks, const std::vector<Value>& values,
                                                   const std::vector<StridedBlock>& blocks,
                                                   SourceLocation where) {
  const auto bytes = [](const StridedBlock& block) {
    return contiguous_block(block.offset * sizeof(Value), block.count() * sizeof(Value));
  };
  std::vector<std::size_t> counts, coming(blocks.size());
  std::vector<StridedBlock> from, to;
  for (const StridedBlock& block : blocks) {
    counts.push_back(block.count());
    from.push_back(bytes(block));
  }
  ranks.all_to_all(counts, coming, {}, {}, where);
  ArrivedValues<Value> out;
  out.blocks = packed_blocks(coming);
  std::size_t total = 0;
  for (const StridedBlock& block : out.blocks) {
    to.push_back(bytes(block));
    total += block.count();
  }
  out.values.resize(total);
  ranks.all_to_all(
      std::span(reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(Value)),
      std::span(reinterpret_cast<std::uint8_t*>(out.values.data()), out.values.size() * sizeof(Value)), from,
      to, where);
  return out;
}

/// The exchange of the elements that the ranks of a group read from one another.
struct IndexPlan {
  explicit IndexPlan(VectorBlocks blocks) : vector(std::move(blocks)) {}

  VectorBlocks vector;
  std::vector<std::int64_t> borrowed;        ///< Global indices of elements of other ranks, ascending.
  std::vector<StridedBlock> borrowed_blocks; ///< Those of each rank of the group.
  std::vector<std::int32_t> lent; ///< Elements that others read, by reader: places in the own block.
  std::vector<StridedBlock> lent_blocks;
  std::vector<std::int32_t> sums;       ///< Each element of `lent` once, ascending.
  std::vector<std::int32_t> sum_begin;  ///< Its first place in `sum_places`.
  std::vector<std::int32_t> sum_places; ///< Its places in `lent`, by reader.

  /// Whether an element is the rank's own, or borrowed.
  [[nodiscard]] bool knows(std::int64_t index) const {
    return vector.owns(index) || std::binary_search(borrowed.begin(), borrowed.end(), index);
  }
  /// The place of an element: in the own block, or after it, among the borrowed ones. @pre it is there
  [[nodiscard]] std::int32_t local_index(std::int64_t index) const {
    if (vector.owns(index))
      return static_cast<std::int32_t>(index - vector.own().offset);
    const auto found = std::lower_bound(borrowed.begin(), borrowed.end(), index);
    return static_cast<std::int32_t>(vector.own().size + (found - borrowed.begin()));
  }
};

/// The plan for reading `indices`, in any order and as often as they come. Collective over the axes of the
/// layout.
[[nodiscard]] IndexPlan index_plan(MeshCore& core, VectorBlocks vector, std::span<const std::int64_t> indices,
                                   SourceLocation where);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE VectorBlocks::VectorBlocks(const MeshCore& core, const LayoutValue& layout,
                                              std::span<const std::string_view> axes, std::int64_t extent)
    : extent_(extent) {
  AxisBinding binding = bind_axes(core, axes);
  std::size_t ranks = 1;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (binding.extents[i] > 1) {
      mask_ |= 1u << binding.mesh_axis[i];
      ranks *= static_cast<std::size_t>(binding.extents[i]);
    }
  if (!fault_of_extent(extent, ranks, "elements").empty())
    extent = 0; // blocks of others may not fit 64 bits
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto rest = static_cast<int>(rank); // the ranks of a group count along its axes in mesh order
    bool here = true;
    for (int axis = core.axis_count(); axis-- > 0;) {
      if ((mask_ >> axis & 1u) == 0)
        continue;
      for (std::size_t i = 0; i < axes.size(); ++i)
        if (binding.mesh_axis[i] == axis)
          binding.coordinates[i] = rest % core.extent(axis);
      here = here && rest % core.extent(axis) == core.coordinate(axis);
      rest /= core.extent(axis);
    }
    blocks_.push_back(block_at(layout, 0, binding, extent));
    if (blocks_.back().size > 0)
      filled_.push_back(rank);
    if (here)
      own_ = rank;
  }
  std::sort(filled_.begin(), filled_.end(),
            [&](std::size_t a, std::size_t b) { return blocks_[a].offset < blocks_[b].offset; });
}

SHARDWRIGHT_INLINE void require_no_fault(const HostCommunicator& ranks, const char* operation,
                                         const std::string& own_fault, SourceLocation where) {
  std::vector<std::string> own;
  if (!own_fault.empty())
    own.push_back(own_fault);
  for (const auto& faults : gather_texts(ranks, own, where))
    for (const std::string& fault : faults)
      throw InvalidArgument(std::string(operation) + ": " + fault,
                            {.rank = ranks.world_rank(), .operation = operation, .where = where});
}

SHARDWRIGHT_INLINE std::string fault_of_extent(std::int64_t extent, std::size_t ranks, const char* what) {
  if (extent < 0)
    return std::string("the ") + what + " must be at least 0, but they are " + std::to_string(extent) +
           " (give those of all ranks together)";
  const std::int64_t longest = ceil_div(extent, static_cast<std::int64_t>(ranks)); // the first rank's block
  if (longest >= most_local_indices)
    return "a rank must hold fewer than 2147483647 " + std::string(what) + ", but it would hold " +
           std::to_string(longest) + " of " + std::to_string(extent) + " (split them over more ranks)";
  return {};
}

/// The first thing that is wrong with what a rank reads, or nothing.
[[nodiscard]] inline std::string fault_of_indices(const HostCommunicator& ranks, const VectorBlocks& vector,
                                                  std::span<const std::int64_t> indices) {
  if (std::string fault = fault_of_extent(vector.extent(), vector.ranks(), "elements"); !fault.empty())
    return fault;
  for (const std::int64_t index : indices)
    if (index < 0 || index >= vector.extent())
      return "every index must be at least 0 and below " + std::to_string(vector.extent()) + ", but rank " +
             std::to_string(ranks.world_rank()) + " reads " + std::to_string(index) +
             " (give global indices of the vector)";
  return {};
}

/// Lists every element that is lent once, with its places by reader: owners add in this order.
SHARDWRIGHT_INLINE void plan_sums(IndexPlan& plan) {
  std::vector<std::int32_t>& places = plan.sum_places;
  for (std::size_t i = 0; i < plan.lent.size(); ++i)
    places.push_back(static_cast<std::int32_t>(i));
  const auto element = [&](std::int32_t place) { return plan.lent[static_cast<std::size_t>(place)]; };
  std::stable_sort(places.begin(), places.end(),
                   [&](std::int32_t a, std::int32_t b) { return element(a) < element(b); });
  for (std::size_t i = 0; i < places.size(); ++i)
    if (i == 0 || element(places[i]) != plan.sums.back()) {
      plan.sums.push_back(element(places[i]));
      plan.sum_begin.push_back(static_cast<std::int32_t>(i));
    }
  plan.sum_begin.push_back(static_cast<std::int32_t>(places.size()));
}

SHARDWRIGHT_INLINE IndexPlan index_plan(MeshCore& core, VectorBlocks vector,
                                        std::span<const std::int64_t> indices, SourceLocation where) {
  HostCommunicator& ranks = core.communicator(vector.mask());
  require_agreement(ranks, "IndexHalo", std::vector{GivenNumber("extent of the vector", vector.extent())},
                    where);
  require_no_fault(ranks, "IndexHalo", fault_of_indices(ranks, vector, indices), where);
  IndexPlan plan(std::move(vector));
  const VectorBlocks& blocks = plan.vector;
  for (const std::int64_t index : indices)
    if (!blocks.owns(index))
      plan.borrowed.push_back(index);
  std::sort(plan.borrowed.begin(), plan.borrowed.end());
  plan.borrowed.erase(std::unique(plan.borrowed.begin(), plan.borrowed.end()), plan.borrowed.end());
  plan.borrowed_blocks.resize(blocks.ranks(), contiguous_block(0, 0));
  for (std::size_t i = 0; i < plan.borrowed.size();) {
    const std::size_t owner = blocks.owner_of(plan.borrowed[i]), first = i;
    while (i < plan.borrowed.size() && blocks.owner_of(plan.borrowed[i]) == owner)
      ++i;
    plan.borrowed_blocks[owner] = contiguous_block(first, i - first);
  }
  const auto asked = exchange_values(ranks, plan.borrowed, plan.borrowed_blocks, where);
  for (const std::int64_t index : asked.values)
    plan.lent.push_back(static_cast<std::int32_t>(index - blocks.own().offset));
  plan.lent_blocks = asked.blocks;
  std::string fault;
  if (blocks.own().size + static_cast<std::int64_t>(plan.borrowed.size()) > most_local_indices ||
      static_cast<std::int64_t>(plan.lent.size()) > most_local_indices)
    fault = "a rank must hold, borrow and lend fewer than 2147483648 elements, but rank " +
            std::to_string(ranks.world_rank()) + " has more (split the vector over more ranks)";
  require_no_fault(ranks, "IndexHalo", fault, where);
  plan_sums(plan);
  return plan;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
