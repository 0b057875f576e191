// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One step of a transition on this rank: its group, the blocks of its ranks, and the call to make.

#include <shardwright/layout/block.hpp>
#include <shardwright/layout/transition_plan.hpp>
#include <shardwright/layout/transition_runtime.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/transition/prepared_collective.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

using Extents = std::array<std::int64_t, max_tensor_rank>;
/// A shape with the maximum number of extents; those beyond its rank are 0.
[[nodiscard]] inline Extents extents_of(std::span<const std::int64_t> shape) {
  Extents extents{};
  std::copy(shape.begin(), shape.end(), extents.begin());
  return extents;
}

/// One step bound to a mesh and a shape. Ranks of its group are numbered in mesh order, whatever the order of
/// its axes.
class StepGeometry {
public:
  StepGeometry(const TransitionStep& step, const AxisBinding& binding, std::span<const std::int64_t> shape)
      : step_(&step), binding_(&binding), shape_(shape) {
    for (const int axis : step.axes) {
      if (extent(axis) == 1)
        continue; // the step does nothing along it
      axes_.push_back(axis);
      mask_ |= 1u << mesh_axis(axis);
      group_size_ *= extent(axis);
    }
    before_ = local_shape(step.before, binding.extents, binding.coordinates, shape);
    after_ = local_shape(step.after, binding.extents, binding.coordinates, shape);
  }

  [[nodiscard]] const TransitionStep& step() const noexcept { return *step_; }
  /// Mesh axes that the group spans.
  [[nodiscard]] unsigned mask() const noexcept { return mask_; }
  [[nodiscard]] std::size_t count_before() const noexcept { return product(before_); }
  [[nodiscard]] std::size_t count_after() const noexcept { return product(after_); }

  /// Whether this rank's coordinate is 0 on every axis of the step.
  [[nodiscard]] bool first() const noexcept {
    for (const int axis : axes_)
      if (binding_->coordinates[static_cast<std::size_t>(axis)] != 0)
        return false;
    return true;
  }

  /// Block of this rank in the buffer before a slice.
  [[nodiscard]] StridedBlock slice_block() const {
    const DimensionBlock base = block_of(step_->before, step_->dimension);
    const DimensionBlock own = block_of(step_->after, step_->dimension);
    return strided(before_, step_->dimension, {own.offset - base.offset, own.size});
  }

  /// The call of a collective step, which refers to the blocks of `bound`.
  void bind(PreparedCollective& bound) const;

private:
  [[nodiscard]] int extent(int axis) const { return binding_->extents[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int mesh_axis(int axis) const { return binding_->mesh_axis[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] DimensionBlock block_of(const LayoutValue& layout, int dimension) const {
    const auto d = static_cast<std::size_t>(dimension);
    return block_at(layout, d, *binding_, shape_[d]);
  }

  /// Distance in group rank between neighbours along an axis.
  [[nodiscard]] int stride(int axis) const {
    int stride = 1;
    for (const int other : axes_)
      if (mesh_axis(other) > mesh_axis(axis))
        stride *= extent(other);
    return stride;
  }

  [[nodiscard]] ReductionOrder order() const;

  static StridedBlock strided(const Extents& buffer, int dimension, DimensionBlock range) {
    std::size_t rows = 1;
    std::size_t inner = 1;
    for (int d = 0; d < max_tensor_rank; ++d) {
      const auto extent = static_cast<std::size_t>(buffer[static_cast<std::size_t>(d)]);
      if (d < dimension)
        rows *= extent;
      if (d > dimension)
        inner *= extent;
    }
    return {static_cast<std::size_t>(range.offset) * inner, rows,
            static_cast<std::size_t>(range.size) * inner,
            static_cast<std::size_t>(buffer[static_cast<std::size_t>(dimension)]) * inner};
  }

  /// Whether the group's chunks of `dimension` of a buffer are equal contiguous runs in rank order, for which
  /// a call needs no blocks.
  [[nodiscard]] bool even(const Extents& buffer, int dimension, const LayoutValue& whole) const {
    for (int d = 0; d < dimension; ++d)
      if (buffer[static_cast<std::size_t>(d)] != 1)
        return false;
    for (int i = 1; i < axes_.count; ++i)
      if (mesh_axis(axes_[i]) < mesh_axis(axes_[i - 1]))
        return false;
    return block_of(whole, dimension).size % group_size_ == 0;
  }

  /// For every rank of the group, its chunk of `dimension` of a buffer whose layout there is `whole`.
  void append_blocks(std::vector<StridedBlock>& blocks, const Extents& buffer, int dimension,
                     const LayoutValue& whole) const;

  const TransitionStep* step_;
  const AxisBinding* binding_;
  std::span<const std::int64_t> shape_;
  AxisSequence axes_{};
  unsigned mask_ = 0;
  int group_size_ = 1;
  Extents before_{};
  Extents after_{};
};

/// The call of a collective step, computed once for each shape. Valid until the mesh's next lookup.
[[nodiscard]] const PreparedCollective& prepared_collective(MeshCore& core, const TransitionStep& step,
                                                            const AxisBinding& binding, const Extents& shape);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void StepGeometry::bind(PreparedCollective& bound) const {
  bound.mask = mask_;
  bound.count_before = count_before();
  bound.count_after = count_after();
  bound.call = {};
  bound.blocks.clear();
  CollectiveCall& call = bound.call;
  std::vector<StridedBlock>& blocks = bound.blocks;
  call.reduce_op = step_->op;
  const auto group = static_cast<std::size_t>(group_size_);
  switch (step_->kind) {
  case StepKind::all_reduce:
    call.operation = Operation::all_reduce;
    call.count = bound.count_before;
    call.order = order();
    break;
  case StepKind::all_gather:
    call.operation = Operation::all_gather;
    call.count = bound.count_before;
    if (!even(after_, step_->dimension, step_->after)) {
      append_blocks(blocks, after_, step_->dimension, step_->after);
      call.out_blocks = {blocks.data(), blocks.size()};
    }
    break;
  case StepKind::reduce_scatter:
    call.operation = Operation::reduce_scatter;
    call.count = bound.count_after;
    call.order = order();
    if (!even(before_, step_->dimension, step_->before)) {
      append_blocks(blocks, before_, step_->dimension, step_->before);
      call.in_blocks = {blocks.data(), blocks.size()};
    }
    break;
  case StepKind::all_to_all:
    call.operation = Operation::all_to_all;
    append_blocks(blocks, before_, step_->dimension, step_->before);
    append_blocks(blocks, after_, step_->from_dimension, step_->after);
    call.in_blocks = {blocks.data(), group};
    call.out_blocks = {blocks.data() + group, group};
    break;
  case StepKind::slice:
  case StepKind::keep_on_first:
  case StepKind::drop_halos:
  case StepKind::exchange_halos: // by tensor/halo/exchange.hpp
    break;
  }
}

SHARDWRIGHT_INLINE ReductionOrder StepGeometry::order() const {
  AxisSequence mesh_order = axes_;
  for (int i = 1; i < mesh_order.count; ++i) // a handful, for which std::sort takes long to compile
    for (auto j = static_cast<std::size_t>(i); j > 0; --j)
      if (mesh_axis(mesh_order.items[j]) < mesh_axis(mesh_order.items[j - 1]))
        std::swap(mesh_order.items[j], mesh_order.items[j - 1]);
  const auto count = static_cast<std::size_t>(mesh_order.count);
  return reduction_order(*step_, binding_->extents, std::span<const int>(mesh_order.items).first(count));
}

SHARDWRIGHT_INLINE void StepGeometry::append_blocks(std::vector<StridedBlock>& blocks, const Extents& buffer,
                                                    int dimension, const LayoutValue& whole) const {
  const DimensionBlock base = block_of(whole, dimension);
  for (int rank = 0; rank < group_size_; ++rank) {
    DimensionBlock range{0, base.size};
    for (const int axis : axes_)
      range = chunk_of(range, extent(axis), rank / stride(axis) % extent(axis));
    blocks.push_back(strided(buffer, dimension, range));
  }
}

SHARDWRIGHT_INLINE const PreparedCollective& prepared_collective(MeshCore& core, const TransitionStep& step,
                                                                 const AxisBinding& binding,
                                                                 const Extents& shape) {
  return core.part<PreparedCollectives>().find(
      &step, shape, [&](PreparedCollective& call) { StepGeometry(step, binding, shape).bind(call); });
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
