// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rotary positions in place on the queries and keys of a fused query-key-value buffer.

#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/attention_shape.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

template <class Element>
struct RotaryTable {
  MatrixSpan<Element> cosines;
  MatrixSpan<Element> sines;
  double base;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t position) const {
    const double half = static_cast<double>(cosines.columns);
    for (std::size_t i = 0; i < cosines.columns; ++i) {
      const double angle = static_cast<double>(position) * std::pow(base, -static_cast<double>(i) / half);
      cosines.row(position)[i] = static_cast<Element>(std::cos(angle));
      sines.row(position)[i] = static_cast<Element>(std::sin(angle));
    }
  }
};

template <class Element>
struct RotaryRows {
  using Number = MainElement<Element>;
  MatrixSpan<Element> qkv;
  MatrixSpan<const Number> cosines;
  MatrixSpan<const Number> sines;
  AttentionShape shape;
  TokenRuns positions;
  Number direction; // -1 turns back

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const std::size_t half = shape.head_dim / 2;
    const std::size_t position = positions.position(token % shape.sequence);
    const Number* cosine = cosines.row(position);
    const Number* sine = sines.row(position);
    const Number sign = direction;
    for (std::size_t group = 0; group < shape.kv_heads; ++group) {
      // The key follows the queries of its group and turns like them; the value after it does not.
      Element* head = qkv.row(token) + group * shape.group_width();
      for (std::size_t h = 0; h <= shape.q_per_kv; ++h, head += shape.head_dim) {
        Element* low = head;
        Element* high = head + half;
        for_chunks<Number>(0, half, [=](auto chunk, std::size_t i) {
          const Lanes<Number> a = chunk.load(low + i);
          const Lanes<Number> b = chunk.load(high + i);
          const Lanes<Number> c = chunk.load(cosine + i);
          const Lanes<Number> s = sign * chunk.load(sine + i);
          chunk.store(low + i, a * c - b * s);
          chunk.store(high + i, b * c + a * s);
        });
      }
    }
  }
};

/// As RotaryRows, a thread for each group of a head's pairs: heads are too short for the lanes of a warp.
template <class Element>
struct RotaryGroups {
  static constexpr std::size_t group = 4;
  using Number = MainElement<Element>;
  RotaryRows<Element> rows;

  /// Calls for one token.
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::size_t calls() const {
    const AttentionShape& shape = rows.shape;
    return shape.kv_heads * (shape.q_per_kv + 1) * blocks_of(shape.head_dim / 2, group);
  }
  SHARDWRIGHT_FUNCTION void operator()(std::size_t index) const {
    const AttentionShape& shape = rows.shape;
    const std::size_t half = shape.head_dim / 2;
    const std::size_t groups = blocks_of(half, group);
    const std::size_t token = index / calls();
    const std::size_t head = index % calls() / groups;
    const std::size_t first = index % groups * group;
    const std::size_t position = rows.positions.position(token % shape.sequence);
    Element* low = rows.qkv.row(token) + head / (shape.q_per_kv + 1) * shape.group_width() +
                   head % (shape.q_per_kv + 1) * shape.head_dim + first;
    Element* high = low + half;
    const Number* cosine = rows.cosines.row(position) + first;
    const Number* sine = rows.sines.row(position) + first;
    const std::size_t count = first + group <= half ? group : half - first;
    using Numbers = ThreadGroup<Number, group>;
    const Numbers a = Numbers::load(low, count);
    const Numbers b = Numbers::load(high, count);
    const Numbers c = Numbers::load(cosine, count);
    const Numbers s = Numbers::load(sine, count);
    Numbers turned_low;
    Numbers turned_high;
    for (std::size_t i = 0; i < group; ++i) {
      turned_low.v[i] = a.v[i] * c.v[i] - b.v[i] * (rows.direction * s.v[i]);
      turned_high.v[i] = b.v[i] * c.v[i] + a.v[i] * (rows.direction * s.v[i]);
    }
    turned_low.store(low, count);
    turned_high.store(high, count);
  }
};

template <class Execution, class Qkv, class Table>
void run_rotary(const char* operation, const Execution& execution, const Qkv& qkv, const Table& cosines,
                const Table& sines, const AttentionShape& shape, const TokenRuns& positions, int direction) {
  using Element = typename Qkv::value_type;
  require(shape.head_dim % 2 == 0, operation, "the head dimension must be even.");
  require(qkv.extent(0) == shape.tokens() && qkv.extent(1) == shape.qkv_width(), operation,
          "the buffer must be [batch * sequence, kv_heads * (q_per_kv + 2) * head_dim].");
  require(cosines.extent(1) == shape.head_dim / 2 && sines.extent(1) == shape.head_dim / 2, operation,
          "the tables must be [positions, head_dim / 2].");
  require(positions.rows == shape.sequence, operation, "every token of a sequence must have a position.");
  require(cosines.extent(0) >= positions.end() && sines.extent(0) >= positions.end(), operation,
          "the tables must reach the last position (make them longer).");
  const auto c = span_of(cosines);
  const auto s = span_of(sines);
  const RotaryRows<Element> rows{
      span_of(qkv), {c.data, c.rows, c.columns, c.stride},       {s.data, s.rows, s.columns, s.stride}, shape,
      positions,    static_cast<MainElement<Element>>(direction)};
  if constexpr (runs_on_host<Execution>) {
    run("sw::rotary", execution, qkv.extent(0), rows);
  } else {
    const RotaryGroups<Element> groups{rows};
    run("sw::rotary", execution, qkv.extent(0) * groups.calls(), groups);
  }
}

} // namespace detail

/// @brief cosines and sines of position * base^(-2 i / head_dim), both [positions, head_dim / 2].
template <class Execution, KernelMatrix Table>
void fill_rotary_tables(const Execution& execution, const Table& cosines, const Table& sines,
                        double base = 10000.0) {
  using Element = typename Table::value_type;
  detail::require(cosines.extent(0) == sines.extent(0) && cosines.extent(1) == sines.extent(1),
                  "fill_rotary_tables", "both tables must have one shape.");
  detail::run("sw::rotary", execution, cosines.extent(0),
              detail::RotaryTable<Element>{detail::span_of(cosines), detail::span_of(sines), base});
}

/// @brief Turns queries and keys by their positions (Su et al. 2021, arXiv 2104.09864); element i pairs with
/// element i + head_dim / 2.
/// @param qkv             fused buffer of `shape`, in place
/// @param cosines, sines  MainElement [positions, head_dim / 2], from fill_rotary_tables
/// @param positions       of the rows of every sequence
template <class Execution, KernelMatrix Qkv, KernelMatrix Table>
void rotary_forward(const Execution& execution, const Qkv& qkv, const Table& cosines, const Table& sines,
                    const AttentionShape& shape, const TokenRuns& positions) {
  detail::run_rotary("rotary_forward", execution, qkv, cosines, sines, shape, positions, 1);
}

/// @brief The inverse turn, which is the gradient of rotary_forward: in place on d_qkv.
template <class Execution, KernelMatrix Qkv, KernelMatrix Table>
void rotary_backward(const Execution& execution, const Qkv& d_qkv, const Table& cosines, const Table& sines,
                     const AttentionShape& shape, const TokenRuns& positions) {
  detail::run_rotary("rotary_backward", execution, d_qkv, cosines, sines, shape, positions, -1);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
