// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The value that a tensor on virtual ranks stands for, and checks of a result against it.

#include "layout/virtual_mesh.hpp"

#include <cmath>
#include <map>
#include <optional>

namespace layout_test {

/// @brief Fills every block with whole numbers; ranks that hold copies hold the same.
inline void fill_whole(const VirtualMesh& mesh, VirtualTensor& tensor, std::uint64_t seed,
                       std::int64_t range) {
  fill_parts(mesh, tensor, [&](const Index& index, const std::vector<int>& coordinates) {
    return static_cast<double>(hashed(seed, index, coordinates, range));
  });
}

/// @brief The element that the parts stand for, or nothing if copies differ or a part is missing.
inline std::optional<double> value_at(const VirtualMesh& mesh, const VirtualTensor& tensor,
                                      const Index& index) {
  std::map<std::vector<int>, double> parts;
  std::size_t wanted = 1;
  double scale = 1;
  ReduceOp op = ReduceOp::sum;
  for (std::size_t axis = 0; axis < mesh.extents.size(); ++axis) {
    if (!tensor.layout.is_partial(static_cast<int>(axis)))
      continue;
    wanted *= static_cast<std::size_t>(mesh.extents[axis]);
    op = tensor.layout.op(static_cast<int>(axis));
    if (op == ReduceOp::average)
      scale /= mesh.extents[axis];
  }
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const VirtualBlock& block = tensor.blocks[static_cast<std::size_t>(rank)];
    if (!block.holds(index))
      continue;
    std::vector<int> key = mesh.coordinates(rank);
    for (std::size_t axis = 0; axis < key.size(); ++axis)
      if (!tensor.layout.is_partial(static_cast<int>(axis)))
        key[axis] = 0;
    const auto [entry, added] = parts.emplace(key, block.at(index));
    if (!added && entry->second != block.at(index))
      return std::nullopt;
  }
  if (parts.size() != wanted)
    return std::nullopt;
  std::optional<double> value;
  for (const auto& [key, part] : parts)
    value = value ? combine(op, *value, part) : part;
  return *value * scale;
}

/// @brief Whether the tensor stands for f(index) everywhere; an element that no rank holds counts as wrong.
template <class Function>
bool stands_for(const VirtualMesh& mesh, const VirtualTensor& tensor, Function&& f) {
  VirtualBlock whole;
  for (std::size_t d = 0; d < whole.ranges.size(); ++d)
    whole.ranges[d] = {0, d < tensor.shape.size() ? tensor.shape[d] : 1};
  bool equal = true;
  whole.for_each([&](const Index& index) {
    const std::optional<double> value = value_at(mesh, tensor, index);
    equal = equal && value && (*value == f(index) || std::abs(*value - f(index)) < 1e-9);
  });
  return equal;
}

} // namespace layout_test
