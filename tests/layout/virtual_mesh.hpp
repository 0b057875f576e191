// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief All ranks of a mesh in one process: blocks of tensors, and transitions executed on them by
/// definition.

#include <shardwright/layout/block.hpp>
#include <shardwright/layout/transition_plan.hpp>
#include <shardwright/layout/transition_runtime.hpp>

#include "support/combine.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace layout_test {

using namespace shardwright;
using test_support::combine;

using Index = std::array<std::int64_t, max_tensor_rank>;

/// @brief Extents per axis of the table; axis 0 is the major one of the mesh unless `order` says otherwise.
struct VirtualMesh {
  std::vector<int> extents;
  std::vector<int> order; ///< Axes of the table, major to minor.

  explicit VirtualMesh(std::vector<int> axis_extents)
      : extents(std::move(axis_extents)), order(extents.size()) {
    std::iota(order.begin(), order.end(), 0);
  }
  [[nodiscard]] int ranks() const {
    return std::accumulate(extents.begin(), extents.end(), 1, std::multiplies<>());
  }
  [[nodiscard]] std::vector<int> coordinates(int rank) const {
    std::vector<int> out(extents.size());
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto axis = static_cast<std::size_t>(order[i]);
      out[axis] = rank % extents[axis];
      rank /= extents[axis];
    }
    return out;
  }
  /// @brief Ranks that differ from `rank` on the given axes only, in mesh order.
  [[nodiscard]] std::vector<int> group(int rank, const AxisSequence& axes) const {
    const std::vector<int> own = coordinates(rank);
    std::vector<int> out;
    for (int other = 0; other < ranks(); ++other) {
      const std::vector<int> theirs = coordinates(other);
      bool same = true;
      for (std::size_t axis = 0; axis < extents.size(); ++axis)
        same = same && (axes.contains(static_cast<int>(axis)) || own[axis] == theirs[axis]);
      if (same)
        out.push_back(other);
    }
    return out;
  }
};

/// @brief One rank's block: the range of every dimension, and its elements in row-major order.
struct VirtualBlock {
  std::array<DimensionBlock, max_tensor_rank> ranges{};
  std::vector<double> data;

  [[nodiscard]] bool holds(const Index& index) const {
    for (std::size_t d = 0; d < ranges.size(); ++d)
      if (index[d] < ranges[d].offset || index[d] >= ranges[d].offset + ranges[d].size)
        return false;
    return true;
  }
  [[nodiscard]] double& at(const Index& index) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < ranges.size(); ++d)
      position = position * ranges[d].size + (index[d] - ranges[d].offset);
    return data.at(static_cast<std::size_t>(position));
  }
  [[nodiscard]] double at(const Index& index) const { return const_cast<VirtualBlock&>(*this).at(index); }
  /// @brief Calls body(index) for every element.
  template <class Body> void for_each(Body&& body) const {
    Index index{};
    visit(0, index, body);
  }

private:
  template <class Body> void visit(std::size_t d, Index& index, Body& body) const {
    if (d == ranges.size())
      return body(static_cast<const Index&>(index));
    for (index[d] = ranges[d].offset; index[d] < ranges[d].offset + ranges[d].size; ++index[d])
      visit(d + 1, index, body);
  }
};

/// @brief A tensor on all ranks of a mesh.
struct VirtualTensor {
  LayoutValue layout;
  std::vector<std::int64_t> shape;
  std::vector<VirtualBlock> blocks;
};

/// @brief Blocks of the right sizes, filled with zeros.
inline VirtualTensor make_tensor(const VirtualMesh& mesh, const LayoutValue& layout,
                                 const std::vector<std::int64_t>& shape) {
  VirtualTensor tensor{layout, shape, std::vector<VirtualBlock>(static_cast<std::size_t>(mesh.ranks()))};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    VirtualBlock& block = tensor.blocks[static_cast<std::size_t>(rank)];
    const std::vector<int> coordinates = mesh.coordinates(rank);
    std::int64_t count = 1;
    for (int d = 0; d < max_tensor_rank; ++d) {
      auto& range = block.ranges[static_cast<std::size_t>(d)];
      range = d < layout.tensor_rank
                  ? dimension_block(layout, d, mesh.extents, coordinates, shape[static_cast<std::size_t>(d)])
                  : DimensionBlock{0, 1};
      count *= range.size;
    }
    block.data.assign(static_cast<std::size_t>(count), 0.0);
  }
  return tensor;
}

/// @brief Combines one value per rank of a group, in the order given.
inline double reduce(ReduceOp op, std::vector<double> values, ReductionOrder order) {
  const auto ranks = static_cast<int>(values.size());
  if (order.count == 0)
    order = {{{{ranks, 1}}}, 1};
  std::vector<bool> alive(values.size(), true);
  for (int level = 0; level < order.count; ++level) {
    const auto [extent, stride] = order.levels[static_cast<std::size_t>(level)];
    for (int base = 0; base < ranks; ++base) {
      if (!alive[static_cast<std::size_t>(base)] || base / stride % extent != 0)
        continue;
      for (int i = 1; i < extent; ++i) {
        const auto other = static_cast<std::size_t>(base + i * stride);
        values[static_cast<std::size_t>(base)] =
            combine(op, values[static_cast<std::size_t>(base)], values.at(other));
        alive.at(other) = false;
      }
    }
  }
  if (std::count(alive.begin(), alive.end(), true) != 1)
    throw std::logic_error("the levels leave ranks out");
  return op == ReduceOp::average ? values[0] / ranks : values[0];
}

/// @brief Executes one step. Every rank reads only blocks of its own group, and only elements that they hold.
inline VirtualTensor run_step(const VirtualMesh& mesh, const VirtualTensor& in, const TransitionMove& move) {
  VirtualTensor out = make_tensor(mesh, apply(move, in.layout), in.shape);
  const ReductionOrder order = reduction_order(move, mesh.extents, mesh.order);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    VirtualBlock& block = out.blocks[static_cast<std::size_t>(rank)];
    const AxisSequence nobody{};
    const std::vector<int> group = mesh.group(rank, move.kind == StepKind::slice ? nobody : move.axes);
    block.for_each([&](const Index& index) {
      if (move.kind == StepKind::keep_on_first) {
        block.at(index) = group.front() == rank ? in.blocks[static_cast<std::size_t>(rank)].at(index) : 0.0;
        return;
      }
      const bool reduces = move.kind == StepKind::reduce_scatter || move.kind == StepKind::all_reduce;
      std::vector<double> found;
      for (const int peer : group) {
        const VirtualBlock& theirs = in.blocks[static_cast<std::size_t>(peer)];
        if (theirs.holds(index))
          found.push_back(theirs.at(index));
      }
      if (found.size() != (reduces ? group.size() : 1))
        throw std::logic_error("an element is lost or doubled");
      block.at(index) = reduces ? reduce(move.op, found, order) : found.front();
    });
  }
  return out;
}

/// @brief Executes a complete plan.
inline VirtualTensor run_plan(const VirtualMesh& mesh, VirtualTensor tensor, const TransitionPlan& plan) {
  for (const TransitionMove& move : plan)
    tensor = run_step(mesh, tensor, move);
  return tensor;
}

/// @brief Fills every block with f(index, coordinates) where coordinates are those of the partial axes,
/// others 0.
template <class Fill> void fill_parts(const VirtualMesh& mesh, VirtualTensor& tensor, Fill&& f) {
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int> coordinates = mesh.coordinates(rank);
    for (std::size_t axis = 0; axis < coordinates.size(); ++axis)
      if (!tensor.layout.is_partial(static_cast<int>(axis)))
        coordinates[axis] = 0;
    VirtualBlock& block = tensor.blocks[static_cast<std::size_t>(rank)];
    block.for_each([&](const Index& index) { block.at(index) = f(index, coordinates); });
  }
}

/// @brief A number in [-range, range] that depends only on its arguments.
inline std::int64_t hashed(std::uint64_t seed, const Index& index, const std::vector<int>& coordinates,
                           std::int64_t range) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  const auto mix = [&state](std::uint64_t value) {
    state = (state ^ value) * 0xBF58476D1CE4E5B9ULL;
    state ^= state >> 29;
  };
  for (const std::int64_t i : index)
    mix(static_cast<std::uint64_t>(i) + 1);
  for (const int c : coordinates)
    mix(static_cast<std::uint64_t>(c) + 101);
  return static_cast<std::int64_t>(state >> 20) % (2 * range + 1) - range;
}

/// @brief Every layout of a tensor rank over the first `axes` axes; partial axes take one of `ops`.
inline std::vector<LayoutValue> all_layouts(int tensor_rank, int axes, const std::vector<ReduceOp>& ops) {
  LayoutValue empty;
  empty.tensor_rank = tensor_rank;
  std::vector<LayoutValue> out{empty};
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<LayoutValue> next;
    for (const LayoutValue& base : out) {
      next.push_back(base);
      for (const ReduceOp op : ops) {
        next.push_back(base);
        next.back().set_partial(axis, op);
      }
      for (int d = 0; d < tensor_rank; ++d)
        for (int position = 0; position <= base.shard(d).count; ++position) {
          LayoutValue placed = base;
          AxisSequence list;
          for (int i = 0; i <= base.shard(d).count; ++i) {
            if (i == position)
              list.push_back(axis);
            if (i < base.shard(d).count)
              list.push_back(base.shard(d)[i]);
          }
          placed.shard(d) = list;
          next.push_back(placed);
        }
    }
    out = next;
  }
  return out;
}

/// @brief Whether every axis has a legal transition.
inline bool is_legal(const LayoutValue& from, const LayoutValue& to, bool internal = false) {
  for (int axis = 0; axis < max_axes; ++axis)
    if (transition_fault(from, to, axis, internal) != TransitionFault::none)
      return false;
  return true;
}

} // namespace layout_test
