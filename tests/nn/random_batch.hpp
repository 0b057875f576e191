// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The layouts of random models, and their data: the same numbers on every mesh.

#include "nn/random_program.hpp"

#include <shardwright/layout/token_order.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/step/batch_origin.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace random_models {

using namespace sw::axis;

using Mesh = sw::DeviceMesh<dp, cp, tp>;
using Rows = sw::Shard<0, dp>;

// What values are read and kept in.
using Ids = sw::Layout<2, Rows, sw::Shard<1, cp>>;
using Stream = sw::Layout<3, Rows, sw::Shard<1, cp>>;
using Split = sw::Layout<3, Rows, sw::Shard<1, cp, tp>>;
using Width = sw::Layout<3, Rows, sw::Shard<2, tp>>; // whole sequences
using Whole = sw::Layout<3, Rows>;
using Pooled = sw::Layout<2, Rows, sw::Shard<1, tp>>;

using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;

/// @brief A number of the data: the same on every mesh, and different for each element.
[[nodiscard]] inline double wave(std::int64_t row, std::size_t element, double phase) {
  return std::sin(phase + 0.7 * static_cast<double>(row) + 1.3 * static_cast<double>(element));
}

/// @brief A microbatch: sequences `first` and on of a step.
class Batch {
  template <class L> using Numbers = sw::ShardedTensor<L, double>;

public:
  using Tokens = sw::ShardedTensor<Ids, std::int32_t>;

  Batch(const Mesh& mesh, const Case& drawn, std::int64_t step, std::int64_t first, std::int64_t rows)
      : origin{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(first),
               static_cast<std::uint64_t>(rows)},
        order(drawn.folded ? sw::ZigZagOrder::rows(drawn.sequence, mesh.template extent<cp>())
                           : sw::NaturalOrder::rows(drawn.sequence, 1)),
        ids(mesh, {rows, drawn.sequence}), targets(mesh, {rows, drawn.sequence}),
        numbers(mesh, {rows, drawn.sequence, drawn.width}), stream(mesh, numbers.shape()),
        split(mesh, numbers.shape()), width(mesh, numbers.shape()), pooled(mesh, {rows, drawn.width}) {
    const auto fill = [&](auto& tensor, double phase) {
      constexpr bool has_positions = std::remove_reference_t<decltype(tensor)>::tensor_rank == 3;
      sw::load_rows(
          tensor,
          [&](std::int64_t row, std::span<double> to) {
            const auto columns = static_cast<std::size_t>(drawn.width);
            for (std::size_t i = 0; i < to.size(); ++i)
              to[i] = wave(row, has_positions ? order.position(i / columns) * columns + i % columns : i,
                           phase + static_cast<double>(step));
          },
          first);
    };
    const auto draw = [&](Tokens& tokens, std::int64_t factor, std::int64_t lowest) {
      sw::load_rows(
          tokens,
          [&](std::int64_t row, std::span<std::int32_t> to) {
            for (std::size_t i = 0; i < to.size(); ++i) {
              const auto position = static_cast<std::int64_t>(order.position(i));
              to[i] = static_cast<std::int32_t>(lowest + (factor * row + 3 * position * position + step) %
                                                             (drawn.vocabulary - lowest));
            }
          },
          first);
    };
    draw(ids, 5, 0);
    draw(targets, 7, -1); // some do not count
    fill(numbers, 0.1);
    fill(stream, 0.2);
    fill(split, 0.3);
    fill(width, 0.4);
    fill(pooled, 0.5);
  }

  sw::BatchOrigin origin;
  sw::RowOrder order;
  Tokens ids, targets;
  Numbers<Stream> numbers, stream;
  Numbers<Split> split;
  Numbers<Width> width;
  Numbers<Pooled> pooled;
};

} // namespace random_models
