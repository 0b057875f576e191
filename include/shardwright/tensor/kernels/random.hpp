// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Random fills and dropout keyed by the global element index, so that they do not depend on the
/// layout.

#include <shardwright/core/element.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The position of a local block of up to four dimensions in its global tensor.
struct BlockPosition {
  std::array<std::size_t, 4> offset{};           ///< Of the block's first element, per dimension.
  std::array<std::size_t, 4> global{1, 1, 1, 1}; ///< Global extents, per dimension.
  RowOrder order{};                   ///< Of a dimension's elements, whose numbers are keyed by position.
  std::size_t ordered = no_dimension; ///< The dimension; not the last of four.
  static constexpr std::size_t no_dimension = ~std::size_t{0};
};

namespace detail {

/// A random word with the other one of its pair: words 2k and 2k + 1 of a stream are a pair.
struct RandomWord {
  std::uint32_t word;
  std::uint32_t partner;
  bool second; ///< Of its pair.
};

/// The random words of `groups` consecutive counters, four each, from `first` on.
template <std::size_t groups>
void fill_words(RandomKey key, std::uint64_t first, std::uint32_t (&words)[4 * groups]) {
  std::uint32_t word[4][groups];
  for (std::size_t g = 0; g < groups; ++g) {
    word[0][g] = static_cast<std::uint32_t>(first + g);
    word[1][g] = static_cast<std::uint32_t>((first + g) >> 32);
    word[2][g] = static_cast<std::uint32_t>(key.tensor);
    word[3][g] = static_cast<std::uint32_t>(key.tensor >> 32);
  }
  shardwright::detail::philox_rounds(word, key.seed);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t w = 0; w < 4; ++w)
      words[4 * g + w] = word[w][g];
}

/// Walks rows by groups of neighbours; `Draw` turns a random word and the input into the value of an element.
template <class Element, class Draw> struct RandomElements {
  static constexpr std::size_t group = 8; // 16 bytes of 16-bit elements
  using Number = AccumulationElement<Element>;
  using Numbers = ThreadGroup<Number, group>;
  const Element* in; // may be `data`
  Element* data;
  std::uint64_t offset[4];
  std::uint64_t global[4];
  std::uint64_t extent[4];
  RowOrder order;
  std::size_t ordered; // the dimension that has this order; not 3: those are neighbours
  RandomKey key;
  Draw draw;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row, std::size_t begin, std::size_t end) const {
    const std::uint64_t index = first_of(row);
    const Element* from = in + row * extent[3];
    Element* to = data + row * extent[3];
    if constexpr (lane_threads == 1) {
      draw_row(index + begin, from + begin, to + begin, end - begin);
    } else {
      for (std::uint64_t i = begin + lane_number() * group; i < end; i += lane_threads * group) {
        const std::size_t count = i + group < end ? group : end - i;
        if ((index + i) % 4 == 0)
          draw_group<true>(index + i, from + i, to + i, count);
        else
          draw_group<false>(index + i, from + i, to + i, count);
      }
    }
  }

  /// Joins rows that are also contiguous in the whole tensor into one: divisions cost as much as a draw.
  void join_rows() {
    for (std::size_t d = 3; d-- > 0 && extent[3] == global[3] && ordered != 2;) {
      offset[3] = offset[2] * global[3];
      extent[3] *= extent[2];
      global[3] *= global[2];
      for (std::size_t e = 2; e > 0; --e) {
        offset[e] = offset[e - 1];
        extent[e] = extent[e - 1];
        global[e] = global[e - 1];
      }
      offset[0] = 0;
      extent[0] = global[0] = 1;
      ordered += ordered < 2 ? 1 : 0;
    }
  }

private:
  /// The index of a row's first element in the whole tensor.
  SHARDWRIGHT_FUNCTION std::uint64_t first_of(std::uint64_t row) const {
    std::uint64_t above = 0, inside = row;
    if (row >= extent[2]) {
      above = row / extent[2];
      inside = row - above * extent[2];
    }
    const std::uint64_t i0 = above < extent[1] ? 0 : above / extent[1];
    const std::uint64_t i1 = above - i0 * extent[1];
    return ((placed(0, i0) * global[1] + placed(1, i1)) * global[2] + placed(2, inside)) * global[3] +
           offset[3];
  }
  SHARDWRIGHT_FUNCTION std::uint64_t placed(std::size_t dimension, std::uint64_t index) const {
    const std::uint64_t row = offset[dimension] + index;
    return dimension == ordered ? order.position(row) : row;
  }

  /// `count` elements from `index` on.
  void draw_row(std::uint64_t index, const Element* from, Element* to, std::size_t count) const {
    constexpr std::size_t groups = 16;
    std::uint32_t words[4 * groups];
    for (std::size_t i = 0; i < count;) {
      fill_words<groups>(key, (index + i) / 4, words);
      const std::size_t first = (index + i) % 4;
      const std::size_t drawn = 4 * groups - first < count - i ? 4 * groups - first : count - i;
      for (std::size_t k = 0; k < drawn; ++k) {
        const std::size_t at = first + k;
        to[i + k] =
            static_cast<Element>(draw(RandomWord{words[at], Draw::pairs ? words[at ^ 1] : 0, at % 2 == 1},
                                      Draw::reads ? static_cast<Number>(from[i + k]) : Number(0)));
      }
      i += drawn;
    }
  }

  /// The first `count` elements of a thread's group that begins at `index`, a multiple of 4 if aligned.
  template <bool aligned>
  SHARDWRIGHT_FUNCTION void draw_group(std::uint64_t index, const Element* from, Element* to,
                                       std::size_t count) const {
    constexpr std::size_t blocks = group / 4 + (aligned ? 0 : 1);
    PhiloxWords words[blocks];
    SHARDWRIGHT_UNROLL
    for (std::size_t b = 0; b < blocks; ++b)
      words[b] = random_words(key, index / 4 + b);
    const unsigned shift = aligned ? 0 : static_cast<unsigned>(index % 4);
    Numbers numbers{};
    if constexpr (Draw::reads)
      numbers = Numbers::load(from, count);
    SHARDWRIGHT_UNROLL
    for (std::size_t k = 0; k < group; ++k) {
      RandomWord random{word<aligned>(words, k, shift), 0, (k + shift) % 2 == 1};
      if constexpr (Draw::pairs)
        random.partner =
            random.second ? word<aligned>(words, k - 1, shift) : word<aligned>(words, k + 1, shift);
      numbers.v[k] = draw(random, numbers.v[k]);
    }
    numbers.store(to, count);
  }

  /// Word k + shift of the blocks, by selections among words that are in registers; k may be -1.
  template <bool aligned, std::size_t blocks>
  SHARDWRIGHT_FUNCTION static std::uint32_t word(const PhiloxWords (&words)[blocks], std::size_t k,
                                                 unsigned shift) {
    const auto of = [&words](std::size_t i) { return i < 4 * blocks ? words[i / 4].word[i % 4] : 0; };
    if constexpr (aligned)
      return of(k);
    else
      return shift == 1 ? of(k + 1) : shift == 2 ? of(k + 2) : of(k + 3);
  }
};

template <class Number> struct DrawUniform {
  static constexpr bool reads = false;
  static constexpr bool pairs = false;
  double low;
  double width;
  SHARDWRIGHT_FUNCTION Number operator()(const RandomWord& random, Number) const {
    return static_cast<Number>(low + width * unit_interval(random.word));
  }
};

/// Box and Muller (1958): words 2k and 2k+1 give the normal numbers 2k and 2k+1.
template <class Number> struct DrawNormal {
  static constexpr bool reads = false;
  static constexpr bool pairs = true;
  double mean;
  double deviation;
  SHARDWRIGHT_FUNCTION Number operator()(const RandomWord& random, Number) const {
    const std::uint32_t first = random.second ? random.partner : random.word;
    const std::uint32_t second = random.second ? random.word : random.partner;
    const double radius = std::sqrt(-2.0 * std::log(unit_interval(first)));
    const double angle = 6.283185307179586 * unit_interval(second);
    const double projection = random.second ? std::sin(angle) : std::cos(angle);
    return static_cast<Number>(mean + deviation * radius * projection);
  }
};

template <class Number> struct DrawDropout {
  static constexpr bool reads = true;
  static constexpr bool pairs = false;
  std::uint32_t dropped; ///< Words below this one are; see words_below.
  Number factor;
  SHARDWRIGHT_FUNCTION Number operator()(const RandomWord& random, Number value) const {
    return random.word < dropped ? Number(0) : factor * value;
  }
};

/// The number of words whose unit_interval is below a probability, ceil(2^32 p - 1/2) without any rounding;
/// one word is always kept.
[[nodiscard]] inline std::uint32_t words_below(double probability) {
  return static_cast<std::uint32_t>(std::clamp(std::ceil(0x1p32 * probability - 0.5), 0.0, 0x1p32 - 1));
}

/// `in` is the data of a block of the same shape, or that of `view` itself.
template <class Execution, KernelView View, class Draw>
void run_random(const char* label, const Execution& execution, const typename View::value_type* in,
                const View& view, const BlockPosition& position, RandomKey key, const Draw& draw) {
  constexpr std::size_t tensor_rank = std::size_t(View::rank);
  static_assert(tensor_rank >= 1 && tensor_rank <= 4,
                "random kernels: the view must have one to four dimensions.");
  using Element = typename View::value_type;
  using shardwright::detail::as_parts;
  RandomElements<RealPart<Element>, Draw> functor{as_parts(in),
                                                  as_parts(flat_span_of(view, label).data),
                                                  {0, 0, 0, 0},
                                                  {1, 1, 1, 1},
                                                  {1, 1, 1, 1},
                                                  position.order,
                                                  3,
                                                  key,
                                                  draw};
  // Dimensions are right-aligned, so that number 3 holds neighbours: the last one, or a row of one element.
  const bool single = position.ordered + 1 == tensor_rank && !position.order.is_natural();
  require(!single || tensor_rank < 4, label, "the last of four dimensions must have no order (merge two).");
  for (std::size_t d = 0; d < tensor_rank; ++d) {
    const std::size_t slot = (single ? 3 : 4) - tensor_rank + d;
    const std::size_t parts = d + 1 == tensor_rank ? shardwright::detail::parts_in<Element> : 1;
    functor.offset[slot] = parts * position.offset[d];
    functor.global[slot] = parts * position.global[d];
    functor.extent[slot] = parts * view.extent(static_cast<unsigned>(d));
    if (d == position.ordered && !position.order.is_natural())
      functor.ordered = slot;
    require(functor.offset[slot] + functor.extent[slot] <= functor.global[slot] || view.size() == 0, label,
            "the block must lie inside the global extents (give the offsets of this rank's block).");
  }
  if (view.size() == 0)
    return;
  functor.join_rows();
  moves(label, execution, view, Draw::reads ? bytes_of(view) : 0);
  run_pieces(label, execution, functor.extent[0] * functor.extent[1] * functor.extent[2], functor.extent[3],
             1024, functor);
}

} // namespace detail

/// @brief Uniform numbers in (low, high); element values depend only on the key and the global index. The
/// parts of complex elements are numbers of their own.
/// @param view contiguous local block of one to four dimensions
/// @throws InvalidArgument if the block does not lie inside the global extents
template <class Execution, KernelView View>
void fill_uniform(const Execution& execution, const View& view, const BlockPosition& position, RandomKey key,
                  double low, double high) {
  using Element = typename View::value_type;
  detail::run_random("fill_uniform", execution, view.data(), view, position, key,
                     detail::DrawUniform<AccumulationElement<RealPart<Element>>>{low, high - low});
}

/// @brief Normal numbers by the method of Box and Muller; computed in double, rounded to the
/// AccumulationElement and then to the element: a 16-bit fill is the fill of floats, rounded.
/// @param view contiguous local block of one to four dimensions
/// @throws InvalidArgument if the block does not lie inside the global extents
template <class Execution, KernelView View>
void fill_normal(const Execution& execution, const View& view, const BlockPosition& position, RandomKey key,
                 double mean, double deviation) {
  using Element = typename View::value_type;
  detail::run_random("fill_normal", execution, view.data(), view, position, key,
                     detail::DrawNormal<AccumulationElement<RealPart<Element>>>{mean, deviation});
}

/// @brief out = 0 with the given probability, else in / (1 - probability); `out` may be `in`.
/// @param in contiguous local block
/// @param out the same extents
/// @throws InvalidArgument if the probability or the block does not fit
template <class Execution, KernelView In, KernelView View>
void dropout_into(const Execution& execution, const In& in, const View& out, const BlockPosition& position,
                  RandomKey key, double probability) {
  using Element = typename View::value_type;
  require(probability >= 0.0 && probability < 1.0, "dropout", "the probability must be in [0, 1).");
  require(in.size() == out.size(), "dropout", "input and output must have the same extents.");
  using Number = AccumulationElement<Element>;
  detail::run_random("dropout", execution, in.data(), out, position, key,
                     detail::DrawDropout<Number>{detail::words_below(probability),
                                                 static_cast<Number>(1.0 / (1.0 - probability))});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
