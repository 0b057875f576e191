// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Formulas of up to three operands, element by element: results and gradients of functions of two.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/lanes/complex_value.hpp>
#include <shardwright/tensor/kernels/lanes/value.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An operand that a formula does not read.
struct Unread {};

/// @brief The gradient of a formula's operand that is the result's, so that nothing need be computed.
template <class V> struct Unchanged : V {
  SHARDWRIGHT_FUNCTION Unchanged(V dy) : V(dy) {}
};

namespace kernels {

/// @brief An operand with an element for every place of the result, or one row for all rows.
template <class Element> struct Elements {
  using Number = AccumulationElement<Element>;
  const Element* data;
  bool repeats = false;
  SHARDWRIGHT_FUNCTION Elements row(std::size_t first) const {
    return {repeats ? data : data + first, repeats};
  }
  template <class Chunk> SHARDWRIGHT_FUNCTION Value<Number> lanes(Chunk chunk, std::size_t c) const {
    return Value<Number>::of(chunk.load_or(data + c, Number(1))); // past the end a divisor is 1
  }
  SHARDWRIGHT_FUNCTION Value<Number, 1> one(std::size_t i, std::size_t c) const {
    return Value<Number, 1>::of(static_cast<Number>(data[repeats ? c : i]));
  }
  SHARDWRIGHT_FUNCTION const Element* memory(const Element*) const { return data; }
  [[nodiscard]] std::size_t bytes(std::size_t count, std::size_t columns) const {
    return (repeats ? columns : count) * sizeof(Element);
  }
};

/// @brief One number for all places; it may be in device memory.
template <class Number, class Element> struct OneElement {
  const Element* data;
  SHARDWRIGHT_FUNCTION OneElement row(std::size_t) const { return *this; }
  template <class Chunk> SHARDWRIGHT_FUNCTION Value<Number> lanes(Chunk, std::size_t) const {
    return Value<Number>::of(detail::broadcast<Number>(static_cast<Number>(*data)));
  }
  SHARDWRIGHT_FUNCTION Value<Number, 1> one(std::size_t, std::size_t) const {
    return Value<Number, 1>::of(static_cast<Number>(*data));
  }
  template <class Memory> SHARDWRIGHT_FUNCTION const Memory* memory(const Memory* other) const {
    return other;
  }
  [[nodiscard]] static std::size_t bytes(std::size_t, std::size_t) { return sizeof(Element); }
};

/// @brief No operand.
struct NoElements {
  SHARDWRIGHT_FUNCTION NoElements row(std::size_t) const { return {}; }
  template <class Chunk> SHARDWRIGHT_FUNCTION Unread lanes(Chunk, std::size_t) const { return {}; }
  SHARDWRIGHT_FUNCTION Unread one(std::size_t, std::size_t) const { return {}; }
  template <class Memory> SHARDWRIGHT_FUNCTION const Memory* memory(const Memory* other) const {
    return other;
  }
  [[nodiscard]] static std::size_t bytes(std::size_t, std::size_t) { return 0; }
};

/// @brief function(dy, left, right) of every element, in registers of a row or one by one.
template <class Element, class Function, class Dy, class Left, class Right> struct Terms {
  using Number = AccumulationElement<Element>;
  [[no_unique_address]] Function function;
  Dy dy;
  Left left;
  Right right;

  /// Calls use(value, memory...) with value(chunk, column) of the row that begins at element `first`.
  template <class Use> SHARDWRIGHT_FUNCTION void of_row(std::size_t first, const Use& use) const {
    const Terms here{function, dy.row(first), left.row(first), right.row(first)};
    const Element* const none = nullptr;
    const Element* const any = here.right.memory(here.left.memory(here.dy.memory(none)));
    use(
        [here](auto chunk, std::size_t c) {
          return here.function(here.dy.lanes(chunk, c), here.left.lanes(chunk, c), here.right.lanes(chunk, c))
              .lanes;
        },
        here.dy.memory(any), here.left.memory(any), here.right.memory(any));
  }
  SHARDWRIGHT_FUNCTION Number one(std::size_t i, std::size_t c) const { return value(i, c).lanes; }
  SHARDWRIGHT_FUNCTION Value<Number, 1> value(std::size_t i, std::size_t c) const {
    return function(dy.one(i, c), left.one(i, c), right.one(i, c));
  }
  /// Of the operands of `count` terms in rows of `columns`.
  [[nodiscard]] std::size_t bytes(std::size_t count, std::size_t columns) const {
    return dy.bytes(count, columns) + left.bytes(count, columns) + right.bytes(count, columns);
  }
};

/// @brief The terms of a function and its operands.
template <class Element, class Function, class Dy, class Left, class Right>
[[nodiscard]] Terms<Element, Function, Dy, Left, Right> terms_of(const Function& function, const Dy& dy,
                                                                 const Left& left, const Right& right) {
  return {function, dy, left, right};
}

/// @brief A right operand of `size` elements, which are repeated if the result has more.
template <class Element> struct RightElements {
  const Element* data;
  std::size_t size;
};

/// @brief A function of one operand, x, as a function of three.
template <class Function> struct MapOf {
  [[no_unique_address]] Function function;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(Unread, V x, Unread) const { return function(x); }
};
/// @brief x as a function of x.
struct SameValue {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x) const { return x; }
};
/// @brief A matrix as terms.
/// @param data [rows, columns]
template <class Element> [[nodiscard]] auto elements_as_terms(const Element* data) {
  return terms_of<Element>(MapOf<SameValue>{}, NoElements{}, Elements<Element>{data}, NoElements{});
}
/// @brief The gradient of a function of one operand, dy times the slope at x or at the result.
template <class Function> struct SlopeOf {
  [[no_unique_address]] Function function;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V dy, V at, Unread) const {
    return dy * conj(V(function.slope(at))); // for complex numbers the adjoint of the derivative
  }
};
/// @brief A function of two operands as a function of three.
template <class Function> struct CombineOf {
  [[no_unique_address]] Function function;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(Unread, V left, V right) const {
    return function(left, right);
  }
};

namespace detail {

/// Stores terms; a call handles some rows, or a piece of one.
template <class Terms, class Element> struct StoreTerms {
  Terms terms;
  Element* out;
  std::size_t rows;
  std::size_t columns;
  std::size_t rows_at_once;
  std::size_t grain;
  std::size_t pieces; // of a row

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::size_t block = work / pieces;
    const std::size_t piece = work % pieces;
    const std::size_t end = block_end(block, rows_at_once, rows);
    for (std::size_t i = block * rows_at_once; i < end; ++i) {
      Element* const to = out + i * columns;
      terms.of_row(i * columns, [&](const auto& value, const auto*... memory) {
        for_chunks<typename Terms::Number>(
            piece * grain, block_end(piece, grain, columns),
            [&value, to](auto chunk, std::size_t c) { chunk.store(to + c, value(chunk, c)); }, memory..., to);
      });
    }
  }
};

/// Stores complex terms one by one; compilers combine the parts of neighbours.
template <class Terms, class Element> struct StoreComplexTerms {
  Terms terms;
  Element* out;
  std::size_t columns;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row, std::size_t begin, std::size_t end) const {
    for (std::size_t c = begin + lane_number(); c < end; c += lane_threads)
      terms.value(row * columns + c, c).store(out + row * columns + c);
  }
};

/// out = terms of `count` elements in rows of `columns`.
template <class Terms, class Element, class Execution>
void store_terms(const char* label, const Execution& execution, const Terms& terms, std::size_t columns,
                 Element* out, std::size_t count) {
  if (count == 0)
    return;
  moves(label, execution, terms.bytes(count, columns), count * sizeof(Element));
  if constexpr (ComplexElement<Element>) {
    run_pieces(label, execution, count / columns, columns, 4096,
               StoreComplexTerms<Terms, Element>{terms, out, columns});
  } else {
    const std::size_t grain = lane_grain_of<Execution>(4096);
    const std::size_t rows = count / columns;
    const std::size_t rows_at_once = columns < grain ? grain / columns : 1;
    const std::size_t pieces = blocks_of(columns, grain);
    run_lanes(label, execution, blocks_of(rows, rows_at_once) * pieces,
              StoreTerms<Terms, Element>{terms, out, rows, columns, rows_at_once, grain, pieces});
  }
}

} // namespace detail

/// @brief out = function(dy, left, right) of `count` elements, which may be any of the operands; each is
/// Elements or NoElements, and the right one may be RightElements or OneElement.
/// @tparam repeats whether a right operand may have fewer elements
template <bool repeats = false, class Function, class Dy, class Left, class Right, class Element,
          class Execution>
void store_formula(const char* label, const Execution& execution, const Function& function, const Dy& dy,
                   const Left& left, const Right& right, Element* out, std::size_t count) {
  if constexpr (std::is_same_v<Right, RightElements<Element>>) {
    if constexpr (repeats)
      if (right.size == 1)
        return store_formula(label, execution, function, dy, left,
                             OneElement<AccumulationElement<Element>, Element>{right.data}, out, count);
    detail::store_terms(label, execution,
                        terms_of<Element>(function, dy, left, Elements<Element>{right.data, repeats}),
                        right.size, out, count);
  } else {
    detail::store_terms(label, execution, terms_of<Element>(function, dy, left, right), count, out, count);
  }
}

} // namespace kernels
} // namespace shardwright::inline SHARDWRIGHT_ABI
