// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Repeats a block along a new middle dimension, as needed for gradients of sums.

#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Rows of `columns`, each a row of x or one number of it.
template <class Element> struct RepeatRows {
  using Number = AccumulationElement<Element>;
  const Element* x;
  Element* out;
  std::size_t columns;
  std::size_t rows_of_one; // rows that have the same row of x
  Number factor;
  bool numbers; // rows of one number each

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row, std::size_t begin, std::size_t end) const {
    Element* to = out + row * columns;
    const Number scale = factor;
    if (numbers) {
      const Lanes<Number> value = broadcast<Number>(scale * static_cast<Number>(x[row]));
      for_chunks<Number>(
          begin, end, [to, &value](auto chunk, std::size_t c) { chunk.store(to + c, value); }, to);
      return;
    }
    const Element* from = x + row / rows_of_one * columns;
    for_chunks<Number>(
        begin, end,
        [from, to, scale](auto chunk, std::size_t c) { chunk.store(to + c, scale * chunk.load(from + c)); },
        from, to);
  }
};

} // namespace detail

/// @brief out[o, m, i] = factor * x[o, i].
/// @param x    contiguous, [outer, inner] elements
/// @param out  contiguous, [outer, middle, inner] elements
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelView X, KernelView Out>
void repeat(const Execution& execution, double factor, const X& x, std::size_t middle, std::size_t inner,
            const Out& out) {
  using Element = typename Out::value_type;
  const auto from = flat_span_of(x, "repeat");
  const auto to = flat_span_of(out, "repeat");
  require(to.size == from.size * middle && (inner == 0 || from.size % inner == 0), "repeat",
          "the result must have `middle` elements for each one of the input.");
  if (to.size == 0)
    return;
  const bool numbers = inner == 1;
  const std::size_t columns = numbers ? middle : inner;
  moves("sw::repeat", execution, from, to);
  run_pieces("sw::repeat", execution, to.size / columns, columns, 4096,
             detail::RepeatRows<Element>{from.data, to.data, columns, middle,
                                         static_cast<AccumulationElement<Element>>(factor), numbers});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
