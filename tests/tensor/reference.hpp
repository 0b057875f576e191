// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The elements that a tensor of any layout must hold on a rank, computed by definition from one
/// random global tensor.

#include <shardwright/core/philox.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/tensor/local_extents.hpp>

#include "support/combine.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tensor_test {

using namespace shardwright;
using test_support::combine;
using Coordinates = std::array<int, max_axes>;
using Shape = std::array<std::int64_t, max_tensor_rank>;

/// @brief A value whose parts along Partial axes are small integers, so that sums and products are exact in
/// any order.
///
/// Addition: integers in [-512, 512]. Product: 1, -1 or 2. Average: multiples of `average_step`.
struct RandomParts {
  std::uint64_t seed = 1;
  int average_step = 1;

  [[nodiscard]] double operator()(std::int64_t element, std::uint64_t part, ReduceOp op) const {
    const std::uint32_t word = random_words({seed, part}, static_cast<std::uint64_t>(element)).word[0];
    if (op == ReduceOp::product)
      return std::array{1.0, -1.0, 2.0}[word % 3];
    const int value = static_cast<int>(word % 1025) - 512;
    return static_cast<double>(op == ReduceOp::average ? value * average_step : value);
  }
};

/// @brief All axes of a table bound to a mesh.
struct Table {
  int axes = 0;
  Coordinates extents{};
  Coordinates coordinates{};
};

/// @brief Value of one global element of a tensor that was made with Partial axes `from` and now has layout
/// `to`: axes that are complete are combined, others show this rank's part. Replicated axes that became
/// Partial hold the value on their first rank and zero elsewhere.
class Reference {
public:
  Reference(const Table& table, const LayoutValue& from, RandomParts parts)
      : table_(table), from_(from), parts_(parts) {}

  [[nodiscard]] double at(std::int64_t element, const LayoutValue& to) const {
    for (int axis = 0; axis < table_.axes; ++axis)
      if (to.is_partial(axis) && !from_.is_partial(axis) && table_.coordinates[index(axis)] != 0)
        return 0;
    return over_axes(0, 0, element, to);
  }

  /// @brief This rank's block in layout `to`.
  [[nodiscard]] std::vector<double> block(const LayoutValue& to, const Shape& shape) const {
    std::array<DimensionBlock, max_tensor_rank> ranges{};
    std::size_t count = 1;
    for (int d = 0; d < max_tensor_rank; ++d) {
      ranges[index(d)] = d < to.tensor_rank
                             ? dimension_block(to, d, table_.extents, table_.coordinates, shape[index(d)])
                             : DimensionBlock{0, 1};
      count *= static_cast<std::size_t>(ranges[index(d)].size);
    }
    std::vector<double> out(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::array<std::int64_t, max_tensor_rank> position{};
      std::size_t rest = i;
      for (std::size_t d = max_tensor_rank; d-- > 0;) {
        const auto size = static_cast<std::size_t>(ranges[d].size);
        position[d] = ranges[d].offset + static_cast<std::int64_t>(rest % size);
        rest /= size;
      }
      std::int64_t element = 0;
      for (std::size_t d = 0; d < static_cast<std::size_t>(to.tensor_rank); ++d)
        element = element * shape[d] + position[d];
      out[i] = at(element, to);
    }
    return out;
  }

private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  [[nodiscard]] double over_axes(int axis, std::uint64_t part, std::int64_t element,
                                 const LayoutValue& to) const {
    if (axis == table_.axes)
      return parts_(element, part, operation());
    if (!from_.is_partial(axis))
      return over_axes(axis + 1, part * 16, element, to);
    if (to.is_partial(axis))
      return over_axes(axis + 1, part * 16 + static_cast<std::uint64_t>(table_.coordinates[index(axis)]),
                       element, to);
    double out = 0;
    for (int i = 0; i < table_.extents[index(axis)]; ++i) {
      const double each = over_axes(axis + 1, part * 16 + static_cast<std::uint64_t>(i), element, to);
      out = i == 0 ? each : combine(from_.op(axis), out, each);
    }
    return from_.op(axis) == ReduceOp::average ? out / table_.extents[index(axis)] : out;
  }
  [[nodiscard]] ReduceOp operation() const {
    for (int axis = 0; axis < table_.axes; ++axis)
      if (from_.is_partial(axis) && from_.op(axis) != ReduceOp::sum)
        return from_.op(axis);
    return ReduceOp::sum;
  }

  Table table_;
  LayoutValue from_;
  RandomParts parts_;
};

/// @brief Every layout of a tensor over the axes 0..axes-1: each is replicated, Partial of one of `ops`, or
/// shards a dimension, in every order of the axes of a dimension.
inline std::vector<LayoutValue> all_layouts(int tensor_rank, int axes, const std::vector<ReduceOp>& ops) {
  std::vector<LayoutValue> out{LayoutValue{tensor_rank, {}, {}, {}}};
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<LayoutValue> next;
    for (const LayoutValue& layout : out) {
      next.push_back(layout);
      for (const ReduceOp op : ops) {
        next.push_back(layout);
        next.back().set_partial(axis, op);
      }
      for (int d = 0; d < tensor_rank; ++d)
        for (int at = 0; at <= layout.shard(d).count; ++at) {
          next.push_back(layout);
          AxisSequence& list = next.back().shard(d);
          list.push_back(axis);
          for (int i = list.count - 1; i > at; --i)
            std::swap(list.items[static_cast<std::size_t>(i)], list.items[static_cast<std::size_t>(i - 1)]);
        }
    }
    out = std::move(next);
  }
  return out;
}

/// @brief For messages: "S0(a,b) P(sum;c)".
inline std::string text_of(const LayoutValue& layout) {
  std::string out;
  for (int d = 0; d < layout.tensor_rank; ++d) {
    if (layout.shard(d).empty())
      continue;
    out += " S" + std::to_string(d) + "(";
    for (const int axis : layout.shard(d))
      out += static_cast<char>('a' + axis);
    out += ")";
  }
  for (int axis = 0; axis < max_axes; ++axis)
    if (layout.is_partial(axis))
      out += " P(" + std::string(name_of(layout.op(axis))) + ";" + static_cast<char>('a' + axis) + ")";
  return out.empty() ? "R" : out.substr(1);
}

} // namespace tensor_test
