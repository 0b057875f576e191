// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rotary position embedding, in place on the queries and keys of a fused query-key-value buffer.

#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

template <class Element> struct RotaryTable {
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

template <class Element> struct RotaryRows {
  using Number = AccumulationElement<Element>;
  MatrixSpan<Element> qkv;
  Rotation<Number> by;
  AttentionShape shape;
  Number direction; // -1 for the inverse rotation

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const std::size_t half = shape.rotary_width() / 2, first = shape.head_dim - shape.rotary_width();
    std::size_t position = by.positions.position(token % shape.sequence);
    if (by.text != nullptr)
      position = static_cast<std::size_t>(by.text[token / shape.sequence * by.places + position]);
    const Number* cosine = by.cosines.row(position);
    const Number* sine = by.sines.row(position);
    const Number sign = direction;
    for (std::size_t group = 0; group < shape.kv_heads; ++group) {
      // The key follows the queries of its group and is rotated like them; the value after it is not.
      Element* head = qkv.row(token) + group * shape.group_width();
      for (std::size_t h = 0; h <= shape.q_per_kv; ++h, head += shape.head_dim) {
        Element* low = head + first;
        Element* high = low + half;
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

/// As RotaryRows, with a warp per call: heads are too short for all lanes, so a thread has the same group of
/// pairs in several heads.
template <class Element> struct RotaryTokens {
  static constexpr unsigned group = 8;
  using Number = AccumulationElement<Element>;
  using Numbers = ThreadGroup<Number, group>;
  RotaryRows<Element> rows;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    const AttentionShape& shape = rows.shape;
    const std::size_t position = rows.by.positions.position(token % shape.sequence);
    Element* const row = rows.qkv.row(token);
    const Number* const cosine = rows.by.cosines.row(position);
    const Number* const sine = rows.by.sines.row(position);
    // One check for all loads, so that there is no branch between them.
    if (shape.rotary_width() % (2 * group) == 0 && shape.head_dim % group == 0 &&
        shape.value_width() % group == 0 && Numbers::is_aligned(row) && Numbers::is_aligned(cosine) &&
        Numbers::is_aligned(sine))
      turn<true>(row, cosine, sine);
    else
      turn<false>(row, cosine, sine);
  }

private:
  template <bool whole>
  SHARDWRIGHT_FUNCTION void turn(Element* row, const Number* cosine, const Number* sine) const {
    const auto head_dim = static_cast<unsigned>(rows.shape.head_dim);
    const auto value_width = static_cast<unsigned>(rows.shape.value_width());
    const auto rotary_width = static_cast<unsigned>(rows.shape.rotary_width());
    const auto turned = static_cast<unsigned>(rows.shape.q_per_kv) + 1; // of each group, before its value
    const auto heads = static_cast<unsigned>(rows.shape.kv_heads) * turned;
    const unsigned half = rotary_width / 2;
    const unsigned groups = (half + group - 1) / group;
    constexpr auto threads = static_cast<unsigned>(lane_threads);
    const unsigned at_once = groups < threads ? threads / groups : 1;
    const unsigned lane = lane_number();
    if (groups < threads && lane >= at_once * groups)
      return;
    for (unsigned first = lane % groups * group; first < half; first += threads * group) {
      const unsigned count = whole || first + group <= half ? group : half - first;
      const Numbers c = load<whole>(cosine + first, count);
      const Numbers s = load<whole>(sine + first, count);
      for (unsigned head = lane / groups; head < heads; head += at_once) {
        Element* const low =
            row + head * head_dim + head / turned * value_width + head_dim - rotary_width + first;
        const Numbers a = load<whole>(low, count);
        const Numbers b = load<whole>(low + half, count);
        Numbers turned_low;
        Numbers turned_high;
        for (unsigned i = 0; i < group; ++i) {
          turned_low.v[i] = a.v[i] * c.v[i] - b.v[i] * (rows.direction * s.v[i]);
          turned_high.v[i] = b.v[i] * c.v[i] + a.v[i] * (rows.direction * s.v[i]);
        }
        store<whole>(turned_low, low, count);
        store<whole>(turned_high, low + half, count);
      }
    }
  }

  template <bool whole, class Value>
  SHARDWRIGHT_FUNCTION static Numbers load(const Value* from, unsigned count) {
    if constexpr (whole)
      return Numbers::load_whole(from);
    else
      return Numbers::load(from, count);
  }
  template <bool whole>
  SHARDWRIGHT_FUNCTION static void store(const Numbers& numbers, Element* to, unsigned count) {
    if constexpr (whole)
      numbers.store_whole(to);
    else
      numbers.store(to, count);
  }
};

template <class Number>
void require_rotation(const char* operation, const Rotation<Number>& by, const AttentionShape& shape) {
  require(shape.rotary_width() % 2 == 0 && shape.rotary_width() <= shape.head_dim, operation,
          "the number of rotated elements of a head must be even.");
  require(by.cosines.columns == shape.rotary_width() / 2 && by.sines.columns == shape.rotary_width() / 2,
          operation, "the tables must be [positions, rotary_width / 2].");
  require(by.positions.rows == shape.sequence, operation, "every token of a sequence must have a position.");
  require(by.cosines.rows >= by.end() && by.sines.rows >= by.end(), operation,
          "the tables must reach the last position (make them longer).");
}

template <class Execution, class Element>
void run_rotary(const Execution& execution, const MatrixSpan<Element>& qkv,
                const Rotation<AccumulationElement<Element>>& by, const AttentionShape& shape,
                int direction) {
  const std::size_t turned = shape.kv_heads * (shape.q_per_kv + 1) * shape.rotary_width() * sizeof(Element);
  const std::size_t tables = shape.sequence * shape.rotary_width() * sizeof(AccumulationElement<Element>);
  moves("sw::rotary", execution, 2 * qkv.rows * turned, tables);
  const RotaryRows<Element> rows{qkv, by, shape, static_cast<AccumulationElement<Element>>(direction)};
  if constexpr (runs_on_host<Execution>)
    run("sw::rotary", execution, qkv.rows, rows);
  else
    run_lanes("sw::rotary", execution, qkv.rows, RotaryTokens<Element>{rows});
}

template <class Execution, class Qkv, class Number>
void rotate(const char* operation, const Execution& execution, const Qkv& qkv, const Rotation<Number>& by,
            const AttentionShape& shape, int direction) {
  require_qkv(operation, shape, qkv);
  require_rotation(operation, by, shape);
  run_rotary(execution, span_of(qkv), by, shape, direction);
}

} // namespace detail

/// @brief cosines and sines of position * base^(-2 i / head_dim), both [positions, head_dim / 2].
/// @throws InvalidArgument for tables of different shapes.
template <class Execution, KernelMatrix Table>
void fill_rotary_tables(const Execution& execution, const Table& cosines, const Table& sines,
                        double base = 10000.0) {
  using Element = typename Table::value_type;
  require(cosines.extent(0) == sines.extent(0) && cosines.extent(1) == sines.extent(1), "fill_rotary_tables",
          "both tables must have the same shape.");
  moves("sw::rope_tables", execution, cosines, sines);
  run("sw::rope_tables", execution, cosines.extent(0),
      detail::RotaryTable<Element>{span_of(cosines), span_of(sines), base});
}

/// @brief Rotates the last rotary_width elements of queries and keys by their positions (Su et al. 2021,
/// arXiv 2104.09864); of these, element i pairs with element i + rotary_width / 2.
/// @param qkv fused buffer of `shape`, in place
template <class Execution, KernelMatrix Qkv, class Number>
void rotary_forward(const Execution& execution, const Qkv& qkv, const Rotation<Number>& by,
                    const AttentionShape& shape) {
  detail::rotate("rotary_forward", execution, qkv, by, shape, 1);
}
/// @brief The same at positions that all sequences share.
/// @param cosines, sines  AccumulationElement [positions, rotary_width / 2], from fill_rotary_tables
/// @param positions       of the rows of every sequence
template <class Execution, KernelMatrix Qkv, KernelMatrix Table>
void rotary_forward(const Execution& execution, const Qkv& qkv, const Table& cosines, const Table& sines,
                    const AttentionShape& shape, const TokenRuns& positions) {
  rotary_forward(execution, qkv,
                 Rotation<typename Table::non_const_value_type>{span_of(cosines), span_of(sines), positions},
                 shape);
}

/// @brief The inverse rotation, which is the gradient of rotary_forward: in place on d_qkv.
/// @param d_qkv fused buffer of `shape`
/// @throws InvalidArgument as rotary_forward
template <class Execution, KernelMatrix Qkv, class Number>
void rotary_backward(const Execution& execution, const Qkv& d_qkv, const Rotation<Number>& by,
                     const AttentionShape& shape) {
  detail::rotate("rotary_backward", execution, d_qkv, by, shape, -1);
}
/// @brief The same at positions that all sequences share.
template <class Execution, KernelMatrix Qkv, KernelMatrix Table>
void rotary_backward(const Execution& execution, const Qkv& d_qkv, const Table& cosines, const Table& sines,
                     const AttentionShape& shape, const TokenRuns& positions) {
  rotary_backward(execution, d_qkv,
                  Rotation<typename Table::non_const_value_type>{span_of(cosines), span_of(sines), positions},
                  shape);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
