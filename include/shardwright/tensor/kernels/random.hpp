// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Random fills and dropout keyed by the global element index, so that they do not depend on the
/// layout.

#include <shardwright/core/element.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The place of a local block of up to four dimensions in its global tensor.
struct BlockPosition {
  std::array<std::size_t, 4> offset{0, 0, 0,
                                    0}; ///< Global index of the block's first element, per dimension.
  std::array<std::size_t, 4> global{1, 1, 1, 1}; ///< Global extents, per dimension.
  /// Indices of the last dimension but one from here on lie `jump` further: a block of two pieces.
  std::size_t split = std::numeric_limits<std::size_t>::max();
  std::size_t jump = 0;
};

namespace detail {

/// Number of random numbers in a row that share the cost of a launch index on the host.
inline constexpr std::size_t random_grain = 1024;

/// Walks runs along the last dimension; `Draw` turns random words and the input into the value of an element.
template <class Element, class Draw>
struct RandomElements {
  const Element* in; // may be `data`
  Element* data;
  std::uint64_t offset[4];
  std::uint64_t global[4];
  std::uint64_t extent[4];
  std::uint64_t split;
  std::uint64_t jump;
  std::uint64_t chunks_per_row;
  std::uint64_t grain;
  RandomKey key;
  Draw draw;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::uint64_t row = work / chunks_per_row;
    const std::uint64_t begin = work % chunks_per_row * grain;
    const std::uint64_t end = begin + grain < extent[3] ? begin + grain : extent[3];
    const std::uint64_t inside = row % extent[2];
    const std::uint64_t i2 = inside < split ? inside : inside + jump;
    const std::uint64_t i1 = row / extent[2] % extent[1];
    const std::uint64_t i0 = row / extent[2] / extent[1];
    const std::uint64_t first =
        (((offset[0] + i0) * global[1] + offset[1] + i1) * global[2] + offset[2] + i2) * global[3] +
        offset[3];
    const Element* from = in + row * extent[3];
    Element* to = data + row * extent[3];
    PhiloxWords words{};
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::uint64_t index = first + i;
      if (i == begin || index % 4 == 0)
        words = random_words(key, index / 4);
      to[i] = draw(words, static_cast<unsigned>(index % 4), from[i]);
    }
  }
};

template <class Element>
struct DrawUniform {
  double low;
  double width;
  SHARDWRIGHT_FUNCTION Element operator()(const PhiloxWords& words, unsigned lane, Element) const {
    return static_cast<Element>(
        static_cast<MainElement<Element>>(low + width * unit_interval(words.word[lane])));
  }
};

/// Box and Muller (1958): words 2k and 2k+1 give the normal numbers 2k and 2k+1.
template <class Element>
struct DrawNormal {
  double mean;
  double deviation;
  SHARDWRIGHT_FUNCTION Element operator()(const PhiloxWords& words, unsigned lane, Element) const {
    const double radius = std::sqrt(-2.0 * std::log(unit_interval(words.word[lane & ~1u])));
    const double angle = 6.283185307179586 * unit_interval(words.word[lane | 1u]);
    const double projection = (lane & 1u) == 0 ? std::cos(angle) : std::sin(angle);
    return static_cast<Element>(static_cast<MainElement<Element>>(mean + deviation * radius * projection));
  }
};

template <class Element>
struct DrawDropout {
  double probability;
  MainElement<Element> factor;
  SHARDWRIGHT_FUNCTION Element operator()(const PhiloxWords& words, unsigned lane, Element value) const {
    return unit_interval(words.word[lane]) < probability ? Element(0) : static_cast<Element>(factor * value);
  }
};

/// `in` is the data of a block of the same shape, or that of `view` itself.
template <class Execution, KernelView View, class Draw>
void run_random(const char* label, const Execution& execution, const typename View::value_type* in,
                const View& view, const BlockPosition& position, RandomKey key, const Draw& draw) {
  constexpr std::size_t tensor_rank = std::size_t(View::rank);
  static_assert(tensor_rank >= 1 && tensor_rank <= 4,
                "random kernels: the view must have one to four dimensions.");
  using Element = typename View::value_type;
  RandomElements<Element, Draw> functor{in,
                                        flat_span_of(view, label).data,
                                        {0, 0, 0, 0},
                                        {1, 1, 1, 1},
                                        {1, 1, 1, 1},
                                        position.split,
                                        position.jump,
                                        1,
                                        grain_of<Execution>(random_grain),
                                        key,
                                        draw};
  // Dimensions are right-aligned, so that the last one is always number 3.
  for (std::size_t d = 0; d < tensor_rank; ++d) {
    const std::size_t slot = 4 - tensor_rank + d;
    functor.offset[slot] = position.offset[d];
    functor.global[slot] = position.global[d];
    functor.extent[slot] = view.extent(static_cast<unsigned>(d));
    const std::size_t jump = slot == 2 && position.split < functor.extent[slot] ? position.jump : 0;
    require(functor.offset[slot] + functor.extent[slot] + jump <= functor.global[slot] || view.size() == 0,
            label, "the block must lie inside the global extents (give the offsets of this rank's block).");
  }
  if (view.size() == 0)
    return;
  functor.chunks_per_row = blocks_of(functor.extent[3], functor.grain);
  run(label, execution, functor.extent[0] * functor.extent[1] * functor.extent[2] * functor.chunks_per_row,
      functor);
}

} // namespace detail

/// @brief Uniform numbers in (low, high); element values depend only on the key and the global index.
/// @param view contiguous local block of one to four dimensions
/// @throws InvalidArgument if the block does not lie inside the global extents
template <class Execution, KernelView View>
void fill_uniform(const Execution& execution, const View& view, const BlockPosition& position, RandomKey key,
                  double low, double high) {
  using Element = typename View::value_type;
  detail::run_random("fill_uniform", execution, view.data(), view, position, key,
                     detail::DrawUniform<Element>{low, high - low});
}

/// @brief Normal numbers by the method of Box and Muller; computed in double, rounded to the MainElement and
/// then to the element: a 16-bit fill is the fill of floats, rounded.
/// @param view contiguous local block of one to four dimensions
/// @throws InvalidArgument if the block does not lie inside the global extents
template <class Execution, KernelView View>
void fill_normal(const Execution& execution, const View& view, const BlockPosition& position, RandomKey key,
                 double mean, double deviation) {
  using Element = typename View::value_type;
  detail::run_random("fill_normal", execution, view.data(), view, position, key,
                     detail::DrawNormal<Element>{mean, deviation});
}

/// @brief out = 0 with the given probability, else in / (1 - probability); `out` may be `in`.
/// @param in contiguous local block
/// @param out the same extents
/// @throws InvalidArgument if the probability or the block does not fit
template <class Execution, KernelView In, KernelView View>
void dropout_into(const Execution& execution, const In& in, const View& out, const BlockPosition& position,
                  RandomKey key, double probability) {
  using Element = typename View::value_type;
  detail::require(probability >= 0.0 && probability < 1.0, "dropout", "the probability must be in [0, 1).");
  detail::require(in.size() == out.size(), "dropout", "input and output must have the same extents.");
  detail::run_random("dropout", execution, in.data(), out, position, key,
                     detail::DrawDropout<Element>{
                         probability, static_cast<MainElement<Element>>(1.0 / (1.0 - probability))});
}

/// @brief In place: zero with the given probability, else divided by (1 - probability).
///
/// The backward pass is the same call on the gradient. A fresh mask per step needs a fresh key.
template <class Execution, KernelView View>
void dropout(const Execution& execution, const View& view, const BlockPosition& position, RandomKey key,
             double probability) {
  dropout_into(execution, view, view, position, key, probability);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
